#include "data/loader.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace assay {

namespace {

void require_positive(const char* name, int64_t value) {
  if (value <= 0)
    throw UserError(strprintf("%s is %ld", name, static_cast<long>(value)),
                    strprintf("set %s to 1 or more", name));
}

}  // namespace

Loader::Loader(LoaderConfig config) : config_(std::move(config)) {
  require_positive("run.batch_tokens", config_.batch_tokens);
  require_positive("run.sequence", config_.sequence);
  require_positive("run.micro_batch", config_.micro_batch);
  CHECK(config_.ranks >= 1 && config_.rank >= 0 && config_.rank < config_.ranks, "rank %d of %d",
        config_.rank, config_.ranks);
  int64_t unit = 0;
  if (__builtin_mul_overflow(config_.micro_batch, config_.sequence, &unit) ||
      __builtin_mul_overflow(unit, int64_t{config_.ranks}, &unit))
    unit = INT64_MAX;
  if (config_.batch_tokens % unit != 0)
    throw UserError(
        strprintf("run.batch_tokens %ld is not a multiple of ranks %d x micro_batch %ld x sequence "
                  "%ld = %ld",
                  static_cast<long>(config_.batch_tokens), config_.ranks,
                  static_cast<long>(config_.micro_batch), static_cast<long>(config_.sequence),
                  static_cast<long>(unit)),
        strprintf("set run.batch_tokens to %ld",
                  static_cast<long>(std::max<int64_t>(1, config_.batch_tokens / unit) * unit)));
  rank_tokens_ = config_.batch_tokens / config_.ranks;
  micro_batches_ = static_cast<int>(rank_tokens_ / (config_.micro_batch * config_.sequence));

  order_ = make_batch_order(config_);
}

Loader::~Loader() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return state_ != State::kWanted; });
    state_ = State::kStop;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::plan(MemoryPlan& memory) {
  CHECK(!thread_.joinable(), "the loader's memory is planned after its first step");
  memory.add<int32_t, 2>(Section::kData, "data.tokens", tokens_, {2, order_->row_tokens()});
  memory.add<std::byte, 1>(Section::kData, "data.raw", raw_, {order_->raw_bytes()});
}

int64_t Loader::bytes() const {
  return 2 * order_->row_tokens() * static_cast<int64_t>(sizeof(int32_t)) + order_->raw_bytes();
}

void Loader::allocate() {
  if (tokens_.empty()) {
    own_tokens_.resize(static_cast<size_t>(2 * order_->row_tokens()));
    own_raw_.resize(static_cast<size_t>(order_->raw_bytes()));
    tokens_ = {own_tokens_.data(), {2, order_->row_tokens()}};
    raw_ = {own_raw_.data(), {static_cast<int64_t>(own_raw_.size())}};
  }
  thread_ = std::thread([this] { work(); });
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return state_ == State::kWanted || state_ == State::kStop; });
    if (state_ == State::kStop) return;
    const int64_t step = wanted_;
    const View<int32_t, 1> row = tokens_(wanted_row_);
    lock.unlock();
    std::exception_ptr failure;
    try {
      order_->read(step, row, raw_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    state_ = State::kReady;
    changed_.notify_all();
  }
}

void Loader::request(int64_t step) {
  {
    std::lock_guard lock(mutex_);
    wanted_ = step;
    wanted_row_ = 1 - current_;
    state_ = State::kWanted;
  }
  changed_.notify_all();
}

void Loader::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_ != State::kWanted; });
}

void Loader::next_step() {
  if (!thread_.joinable()) {
    allocate();
    request(next_);
  }
  wait_idle();
  if (failure_) std::rethrow_exception(failure_);
  current_ = 1 - current_;
  have_batch_ = true;
  for (const std::string& line : order_->begins_again(next_)) announce(line);
  current_epoch_ = cursor_of(next_).epoch;
  request(++next_);
}

Batch Loader::micro(int i) const {
  CHECK(have_batch_ && i >= 0 && i < micro_batches_, "micro-batch %d of %d (%s)", i, micro_batches_,
        have_batch_ ? "read" : "before next_step()");
  const int64_t size = config_.micro_batch * config_.sequence;
  const int32_t* first = tokens_.row(current_) + i * size;
  return {.token = {first, {size}}, .target = {first + order_->target_at(), {size}}};
}

int64_t Loader::counted_targets(int mask_id) const {
  CHECK(have_batch_, "targets are counted before next_step(), mask id %d", mask_id);
  const int32_t* target = tokens_.row(current_) + order_->target_at();
  return rank_tokens_ - std::count(target, target + rank_tokens_, mask_id);
}

void Loader::seek(Cursor cursor) {
  next_ = order_->step_of(cursor);
  current_epoch_ = cursor.epoch;
  have_batch_ = false;
  if (!thread_.joinable()) return;
  wait_idle();
  request(next_);
}

void Loader::announce(const std::string& line) const {
  if (config_.say) return config_.say(line);
  std::fprintf(stderr, "%s\n", line.c_str());
}

ValidationSet::ValidationSet(const Config& config)
    : sequence_(config.sequence), micro_batch_(config.micro_batch) {
  require_positive("eval.tokens", config.tokens);
  require_positive("run.sequence", config.sequence);
  require_positive("run.micro_batch", config.micro_batch);
  if (config.files.empty())
    throw UserError("data.val names no shard",
                    "give files, or write shards with: assay data prepare");
  std::vector<Shard> shards;
  for (const std::string& file : config.files) {
    Shard& shard = shards.emplace_back(file);
    if (const auto found = config.hashed.find(file); found != config.hashed.end())
      shard.expect(found->second);
  }
  std::vector<int64_t> sequences;  // number taken from each shard
  const int64_t wanted = (config.tokens - 1) / sequence_ + 1;
  for (const Shard& shard : shards) {
    sequences.push_back(
        std::min(wanted - sequences_, std::max<int64_t>(0, shard.tokens() - 1) / sequence_));
    sequences_ += sequences.back();
  }
  if (sequences_ == 0)
    throw UserError(strprintf("the validation data is too short: 0 whole sequences of %ld",
                              static_cast<long>(sequence_)),
                    "use more validation text or a smaller run.sequence");

  std::vector<int32_t> row(static_cast<size_t>(sequence_ + 1));
  std::vector<std::byte> raw(row.size() * sizeof(int32_t));
  for (size_t s = 0; s < shards.size(); ++s)
    for (int64_t i = 0; i < sequences[s]; ++i) {
      shards[s].read(i * sequence_, config.vocab_size, {row.data(), {sequence_ + 1}},
                     {raw.data(), {static_cast<int64_t>(raw.size())}});
      token_.insert(token_.end(), row.begin(), row.end() - 1);
      target_.insert(target_.end(), row.begin() + 1, row.end());
    }
}

Batch ValidationSet::micro(int i) const {
  CHECK(i >= 0 && i < micro_batches(), "validation micro-batch %d of %d", i, micro_batches());
  const int64_t first = i * micro_batch_;
  const int64_t size = std::min(micro_batch_, sequences_ - first) * sequence_;
  return {.token = {token_.data() + first * sequence_, {size}},
          .target = {target_.data() + first * sequence_, {size}}};
}

}  // namespace assay
