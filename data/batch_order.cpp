#include "data/batch_order.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "data/loader.h"
#include "data/mixture.h"
#include "data/sequence_order.h"

namespace assay {

namespace {

// If the shards have no more bytes than this, all ids are checked before the first step, so that a
// wrong id is found at once.
constexpr int64_t kScanBytes = int64_t{1} << 30;

int64_t token_bytes_of(const ShardBlocks& blocks) {
  int64_t bytes = 0;
  for (const Shard& shard : blocks.shards()) bytes += shard.tokens() * shard.token_bytes();
  return bytes;
}

void check_all_tokens(const ShardBlocks& blocks, IdLimit limit) {
  for (const Shard& shard : blocks.shards()) check_tokens(shard, limit);
}

[[noreturn]] void throw_no_step(const std::string& what) {
  throw UserError("the data has no " + what,
                  "resume with the files and the run.batch_tokens that the run was started with");
}

// The number of blocks in an epoch. UserError if it is less than `needed`.
int64_t enough_blocks(const LoaderConfig& c, const ShardBlocks& blocks, int64_t needed) {
  if (c.files.empty())
    throw UserError("data.train names no shard",
                    "give files, or write shards with: assay data prepare");
  if (blocks.blocks() >= needed) return blocks.blocks();
  const std::string has =
      needed == 1
          ? strprintf("the longest of %zu shards has %ld tokens, run.batch_tokens %ld needs %ld",
                      blocks.shards().size(), static_cast<long>(blocks.longest_tokens()),
                      static_cast<long>(c.batch_tokens), static_cast<long>(c.batch_tokens + 1))
          : strprintf("%zu shards have %ld sequences of %ld tokens, run.batch_tokens %ld needs %ld",
                      blocks.shards().size(), static_cast<long>(blocks.blocks()),
                      static_cast<long>(c.sequence), static_cast<long>(c.batch_tokens),
                      static_cast<long>(needed));
  const bool no_sequence = blocks.longest_tokens() <= c.sequence;
  throw UserError(
      "the training data is shorter than a batch: " + has,
      strprintf("use more text or a smaller %s",
                no_sequence ? "run.sequence and run.batch_tokens" : "run.batch_tokens"));
}

class InOrder : public BatchOrder {
 public:
  explicit InOrder(const LoaderConfig& c)
      : blocks_(c.files, c.batch_tokens, c.hashed),
        batch_tokens_(c.batch_tokens),
        rank_(c.rank),
        rank_tokens_(c.batch_tokens / c.ranks),
        limit_(c.vocab_size) {
    enough_blocks(c, blocks_, 1);
    if (token_bytes_of(blocks_) <= kScanBytes) check_all_tokens(blocks_, limit_);
  }

  int64_t row_tokens() const override { return rank_tokens_ + 1; }
  int64_t target_at() const override { return 1; }
  int64_t raw_bytes() const override { return row_tokens() * blocks_.token_bytes(); }
  void read(int64_t step, View<int32_t, 1> row, View<std::byte, 1> raw) override {
    blocks_.read(blocks_.cursor_of(step), rank_ * rank_tokens_, limit_, row, raw);
  }

  double epochs(int64_t steps) const override { return double(steps) / double(blocks_.blocks()); }
  Cursor cursor_of(int64_t step) const override { return blocks_.cursor_of(step); }
  int64_t step_of(const Cursor& c) const override {
    const int64_t shards = static_cast<int64_t>(blocks_.shards().size());
    const bool known = c.shard >= 0 && c.shard < shards && c.batch >= 0 && c.epoch >= 0;
    const int64_t batches = blocks_.blocks_of(known ? c.shard : 0);
    if (!known || c.batch >= batches)
      throw_no_step(strprintf(
          "batch %ld in shard %ld (epoch %ld): %ld shards, %ld batches in that one",
          static_cast<long>(c.batch), static_cast<long>(c.shard), static_cast<long>(c.epoch),
          static_cast<long>(shards), static_cast<long>(batches)));
    return blocks_.block_of(c);
  }
  std::vector<std::string> begins_again(int64_t step) override {
    const int64_t batches = blocks_.blocks();
    if (step == 0 || step % batches != 0) return {};
    return {strprintf("data: epoch %ld begins, the same %ld batches of %ld tokens again",
                      static_cast<long>(step / batches + 1), static_cast<long>(batches),
                      static_cast<long>(batch_tokens_))};
  }
  std::span<const SourceUse> use(int64_t) override { return {}; }
  std::vector<int64_t> source_sequences() const override { return {}; }

 private:
  ShardBlocks blocks_;
  int64_t batch_tokens_;
  int64_t rank_;
  int64_t rank_tokens_;
  IdLimit limit_;
};

// A row of sequences: the tokens of all of them, then the targets of all of them.
class SequenceRow {
 public:
  SequenceRow(int64_t sequences, int64_t sequence, IdLimit limit)
      : sequences_(sequences),
        sequence_(sequence),
        limit_(limit),
        tokens_(static_cast<size_t>(sequence + 1)) {}

  int64_t target_at() const { return sequences_ * sequence_; }
  int64_t row_tokens() const { return 2 * target_at(); }

  // Reads a block of one sequence to place i of the row.
  void read(const ShardBlocks& from, int64_t block, int64_t i, View<int32_t, 1> row,
            View<std::byte, 1> raw) {
    from.read(from.cursor_of(block), 0, limit_, {tokens_.data(), {sequence_ + 1}}, raw);
    int32_t* token = row.data + i * sequence_;
    std::copy_n(tokens_.data(), sequence_, token);
    std::copy_n(tokens_.data() + 1, sequence_, token + target_at());
  }

 private:
  int64_t sequences_;
  int64_t sequence_;
  IdLimit limit_;
  std::vector<int32_t> tokens_;  // (sequence + 1)
};

std::string epoch_line(int64_t epoch, const std::string& of, int64_t sequences, int64_t sequence,
                       Shuffle shuffle) {
  return strprintf(shuffle == Shuffle::kYes
                       ? "data: epoch %ld%s begins: the same %ld sequences of %ld tokens in a new "
                         "order"
                       : "data: epoch %ld%s begins, the same %ld sequences of %ld tokens again",
                   static_cast<long>(epoch), of.c_str(), static_cast<long>(sequences),
                   static_cast<long>(sequence));
}

class Shuffled : public BatchOrder {
 public:
  explicit Shuffled(const LoaderConfig& c)
      : blocks_(c.files, c.sequence, c.hashed),
        sequence_(c.sequence),
        step_sequences_(c.batch_tokens / c.sequence),
        rank_sequences_(step_sequences_ / c.ranks),
        first_(c.rank * rank_sequences_),
        row_(rank_sequences_, c.sequence, c.vocab_size),
        order_(enough_blocks(c, blocks_, step_sequences_), c.seed) {
    if (token_bytes_of(blocks_) <= kScanBytes) check_all_tokens(blocks_, c.vocab_size);
  }

  int64_t row_tokens() const override { return row_.row_tokens(); }
  int64_t target_at() const override { return row_.target_at(); }
  int64_t raw_bytes() const override { return (sequence_ + 1) * blocks_.token_bytes(); }
  void read(int64_t step, View<int32_t, 1> row, View<std::byte, 1> raw) override {
    const int64_t begin = step * step_sequences_ + first_;
    for (int64_t i = 0; i < rank_sequences_; ++i)
      row_.read(blocks_, order_.at(begin + i), i, row, raw);
  }

  // A step may have sequences of two epochs.
  double epochs(int64_t steps) const override {
    return double(steps) * double(step_sequences_) / double(blocks_.blocks());
  }
  Cursor cursor_of(int64_t step) const override {
    return {.batch = step, .epoch = step * step_sequences_ / blocks_.blocks()};
  }
  int64_t step_of(const Cursor& c) const override {
    if (c.batch < 0 || c != cursor_of(c.batch))
      throw_no_step(strprintf("step %ld in shard %ld (epoch %ld): %ld shuffled sequences",
                              static_cast<long>(c.batch), static_cast<long>(c.shard),
                              static_cast<long>(c.epoch), static_cast<long>(blocks_.blocks())));
    return c.batch;
  }
  std::vector<std::string> begins_again(int64_t step) override {
    const int64_t sequences = blocks_.blocks(), end = (step + 1) * step_sequences_;
    const int64_t before = ceil_div(step * step_sequences_, sequences);
    const int64_t begun = ceil_div(end, sequences);
    if (step == 0 || begun == before) return {};
    return {epoch_line(begun, "", sequences, sequence_, Shuffle::kYes)};
  }
  std::span<const SourceUse> use(int64_t) override { return {}; }
  std::vector<int64_t> source_sequences() const override { return {}; }

 private:
  ShardBlocks blocks_;
  int64_t sequence_;
  int64_t step_sequences_;  // of all ranks
  int64_t rank_sequences_;
  int64_t first_;    // of this rank in a step
  SequenceRow row_;  // used by the loader's thread
  SequenceOrder order_;
};

std::vector<double> weights_of(const std::vector<MixtureSource>& sources) {
  std::vector<double> weights;
  for (const MixtureSource& source : sources) weights.push_back(source.weight);
  return weights;
}

class Mixed : public BatchOrder {
 public:
  explicit Mixed(const LoaderConfig& c)
      : mixture_(weights_of(c.mixture), c.batch_tokens / c.sequence, c.seed),
        sequence_(c.sequence),
        shuffle_(c.shuffle),
        rank_(c.rank),
        rank_sequences_(mixture_.sequences() / c.ranks),
        row_(rank_sequences_, c.sequence, c.vocab_size),
        drawn_(mixture_),
        drawn_to_read_(mixture_),
        next_(c.mixture.size()),
        source_(static_cast<size_t>(mixture_.sequences())),
        begun_(c.mixture.size()),
        use_(c.mixture.size()) {
    int64_t bytes = 0;
    for (const MixtureSource& source : c.mixture) {
      names_.push_back(source.name);
      const ShardBlocks& blocks = blocks_.emplace_back(source.files, sequence_, c.hashed);
      bytes += token_bytes_of(blocks);
      if (blocks.blocks() > 0) {
        orders_.emplace_back(blocks.blocks(), c.seed, orders_.size() + 1);
        continue;
      }
      throw UserError(
          strprintf("data.train: %s is shorter than a sequence: the longest of its %zu shards has "
                    "%ld tokens, run.sequence %ld needs %ld",
                    source.name.c_str(), source.files.size(),
                    static_cast<long>(blocks.longest_tokens()), static_cast<long>(sequence_),
                    static_cast<long>(sequence_ + 1)),
          "use more text or a smaller run.sequence, or remove it from data.train and data.mixture");
    }
    for (const ShardBlocks& blocks : blocks_)
      if (bytes <= kScanBytes) check_all_tokens(blocks, c.vocab_size);
  }

  int64_t row_tokens() const override { return row_.row_tokens(); }
  int64_t target_at() const override { return row_.target_at(); }
  int64_t raw_bytes() const override {
    int64_t widest = 0;
    for (const ShardBlocks& blocks : blocks_) widest = std::max(widest, blocks.token_bytes());
    return (sequence_ + 1) * widest;
  }
  void read(int64_t step, View<int32_t, 1> row, View<std::byte, 1> raw) override {
    const std::span<const int64_t> before = drawn_to_read_.at(step);
    std::copy(before.begin(), before.end(), next_.begin());
    mixture_.draw(step, source_);
    const int64_t first = rank_ * rank_sequences_;
    for (int64_t i = 0; i < mixture_.sequences(); ++i) {
      const size_t source = static_cast<size_t>(source_[static_cast<size_t>(i)]);
      const int64_t n = next_[source]++;
      if (i < first || i >= first + rank_sequences_) continue;
      const int64_t block = shuffle_ == Shuffle::kYes ? orders_[source].at(n) : n;
      row_.read(blocks_[source], block, i - first, row, raw);
    }
  }

  double epochs(int64_t) const override { return 0; }
  Cursor cursor_of(int64_t step) const override { return {.batch = step}; }
  int64_t step_of(const Cursor& c) const override {
    if (c.batch < 0 || c != cursor_of(c.batch))
      throw_no_step(strprintf("step %ld in shard %ld (epoch %ld): a mixture counts only steps",
                              static_cast<long>(c.batch), static_cast<long>(c.shard),
                              static_cast<long>(c.epoch)));
    return c.batch;
  }
  std::vector<std::string> begins_again(int64_t step) override {
    const std::span<const int64_t> before = drawn_.at(step);
    for (size_t k = 0; k < before.size(); ++k)
      begun_[k] = std::max<int64_t>(1, begun(k, before[k]));
    const std::span<const int64_t> after = drawn_.at(step + 1);
    std::vector<std::string> lines;
    for (size_t k = 0; k < after.size(); ++k)
      if (begun(k, after[k]) > begun_[k])
        lines.push_back(epoch_line(begun(k, after[k]), " of " + names_[k], blocks_[k].blocks(),
                                   sequence_, shuffle_));
    return lines;
  }
  std::span<const SourceUse> use(int64_t steps) override {
    const std::span<const int64_t> drawn = drawn_.at(steps);
    const double all = static_cast<double>(steps * mixture_.sequences());
    for (size_t k = 0; k < use_.size(); ++k)
      use_[k] = {
          .share = steps > 0 ? static_cast<double>(drawn[k]) / all : 0,
          .epochs = static_cast<double>(drawn[k]) / static_cast<double>(blocks_[k].blocks())};
    return use_;
  }
  std::vector<int64_t> source_sequences() const override {
    std::vector<int64_t> sequences;
    for (const ShardBlocks& blocks : blocks_) sequences.push_back(blocks.blocks());
    return sequences;
  }

 private:
  // Epochs of a source begun by its first `drawn` sequences.
  int64_t begun(size_t source, int64_t drawn) const {
    const int64_t blocks = blocks_[source].blocks();
    return ceil_div(drawn, blocks);
  }

  Mixture mixture_;
  std::vector<std::string> names_;
  std::vector<ShardBlocks> blocks_;    // (sources)
  std::vector<SequenceOrder> orders_;  // (sources)
  int64_t sequence_;
  Shuffle shuffle_;
  int64_t rank_;
  int64_t rank_sequences_;
  SequenceRow row_;              // used by the loader's thread
  DrawnBefore drawn_;            // used by the caller's thread
  DrawnBefore drawn_to_read_;    // used by the loader's thread, like the next three
  std::vector<int64_t> next_;    // (sources) sequence to read next
  std::vector<int32_t> source_;  // (sequences) source of each sequence of the step
  std::vector<int64_t> begun_;   // (sources) epochs begun before the step
  std::vector<SourceUse> use_;   // (sources)
};

}  // namespace

std::unique_ptr<BatchOrder> make_batch_order(const LoaderConfig& config) {
  if (!config.mixture.empty()) return std::make_unique<Mixed>(config);
  if (config.shuffle == Shuffle::kYes) return std::make_unique<Shuffled>(config);
  return std::make_unique<InOrder>(config);
}

}  // namespace assay
