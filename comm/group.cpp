#include "comm/group.h"

#include "base/check.h"
#include "base/hash.h"

namespace assay {

// Adds its own lifetime to the time in calls, also if the call throws.
class Group::Timed {
 public:
  explicit Timed(Group& group) : group_(group) {}
  ~Timed() { group_.time_in_calls_ += std::chrono::steady_clock::now() - start_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Group& group_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Group::Group(int size, int rank) : size_(size), rank_(rank) {
  CHECK(size >= 1 && rank >= 0 && rank < size, "group: rank %d of %d", rank, size);
}

void Group::count(Call call, uint64_t size, uint64_t sent) {
  const uint64_t words[] = {calls_hash_, uint64_t(call), size};
  calls_hash_ = hash_words(words, 3);
  calls_ += 1;
  bytes_sent_ += sent;
  if (told_) told_(calls_);
}

void Group::all_gather(Exec lane, void* all, const void* mine, size_t bytes) {
  const Timed timed(*this);
  count(Call::kAllGather, bytes, bytes * uint64_t(size_ - 1));
  if (bytes > 0) gather(lane, all, mine, bytes);
}

void Group::all_to_all(Exec lane, void* to, const void* from, size_t bytes) {
  CHECK(to != from || bytes == 0, "all_to_all of %zu bytes in place", bytes);
  const Timed timed(*this);
  count(Call::kAllToAll, bytes, bytes * uint64_t(size_ - 1));
  if (bytes > 0) exchange_rows(lane, to, from, bytes);
}

void Group::all_to_all_v(Exec lane, const Exchange& exchange) {
  const auto members = size_t(size_), me = size_t(rank_);
  CHECK(exchange.received.size() == members && exchange.sent.size() == members,
        "all_to_all_v: %zu runs received, %zu sent, %d members", exchange.received.size(),
        exchange.sent.size(), size_);
  CHECK(exchange.received[me].bytes == exchange.sent[me].bytes,
        "all_to_all_v: rank %d sends itself %zu bytes and receives %zu", rank_,
        exchange.sent[me].bytes, exchange.received[me].bytes);
  uint64_t sent = 0;
  for (size_t r = 0; r < members; ++r) sent += r == me ? 0 : exchange.sent[r].bytes;
  const Timed timed(*this);
  count(Call::kAllToAllV, 0, sent);
  exchange_runs(lane, exchange);
}

void Group::sum_integers(Exec lane, View<int64_t, 1> x) {
  const Timed timed(*this);
  count(Call::kSumIntegers, uint64_t(x.dim[0]), x.bytes() * uint64_t(size_ - 1));
  if (x.dim[0] > 0) add_integers(lane, x);
}

}  // namespace assay
