#include "data/ngram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace assay {
namespace {

constexpr int kMaxOrder = 8;

// Never returns 0, which marks a free slot.
uint64_t mix(uint64_t h, uint64_t token) {
  h = (h ^ (token + 1)) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 29)) * 0xBF58476D1CE4E5B9u;
  return (h ^ (h >> 32)) | 1;
}

uint64_t ngram_key(uint64_t context, int32_t token) {
  return mix(context ^ 0xD1B54A32D192ED03u, static_cast<uint64_t>(token));
}

// Writes context[k - 1] = hash of the k - 1 tokens before `at`. Returns the number of contexts, at
// most `order`.
int context_keys(View<const int32_t, 1> tokens, int64_t at, int order, uint64_t* context) {
  context[0] = 0x243F6A8885A308D3u;
  int k = 1;
  for (; k < order && k <= at; ++k) {
    context[k] = mix(context[k - 1], static_cast<uint64_t>(tokens.data[at - k]));
  }
  return k;
}

template <typename Entries, typename Value>
double discount_of(const Entries& entries, Value value) {
  double once = 0, twice = 0;
  for (const auto& e : entries) {
    once += value(e) == 1;
    twice += value(e) == 2;
  }
  return once > 0 ? once / (once + 2 * twice) : 0.5;
}

}  // namespace

template <typename Entry>
Entry& NgramModel::Table<Entry>::insert(uint64_t key) {
  if (used_ * 3 >= entries_.size() * 2) {
    std::vector<Entry> larger(entries_.size() * 2);
    for (const Entry& e : entries_) {
      if (e.key == 0) continue;
      size_t slot = e.key >> 1 & (larger.size() - 1);
      while (larger[slot].key != 0) slot = (slot + 1) & (larger.size() - 1);
      larger[slot] = e;
    }
    entries_.swap(larger);
  }
  size_t slot = key >> 1 & (entries_.size() - 1);
  while (entries_[slot].key != 0 && entries_[slot].key != key) {
    slot = (slot + 1) & (entries_.size() - 1);
  }
  used_ += entries_[slot].key == 0;
  entries_[slot].key = key;
  return entries_[slot];
}

template <typename Entry>
const Entry* NgramModel::Table<Entry>::find(uint64_t key) const {
  size_t slot = key >> 1 & (entries_.size() - 1);
  while (entries_[slot].key != 0) {
    if (entries_[slot].key == key) return &entries_[slot];
    slot = (slot + 1) & (entries_.size() - 1);
  }
  return nullptr;
}

NgramModel::NgramModel(int order, int64_t vocab_size, View<const int32_t, 1> train)
    : order_(order), vocab_size_(vocab_size), levels_(static_cast<size_t>(order)) {
  CHECK(order >= 1 && order <= kMaxOrder, "ngram: order %d, at most %d", order, kMaxOrder);
  count(train);
  for (Level& level : levels_) {
    level.discount = discount_of(level.counts.entries(), [](const Count& c) { return c.count; });
    level.continuation_discount =
        discount_of(level.counts.entries(), [](const Count& c) { return c.continuation; });
  }
}

void NgramModel::count(View<const int32_t, 1> train) {
  uint64_t context[kMaxOrder];
  for (int64_t i = 0; i < train.size(); ++i) {
    const int orders = context_keys(train, i, order_, context);
    for (int k = orders; k >= 1; --k) {
      Level& level = levels_[static_cast<size_t>(k - 1)];
      Count& gram = level.counts.insert(ngram_key(context[k - 1], train.data[i]));
      Context& before = level.contexts.insert(context[k - 1]);
      ++before.count;
      if (++gram.count > 1) continue;
      ++before.types;
      if (k == 1) continue;
      Level& shorter = levels_[static_cast<size_t>(k - 2)];
      Context& shorter_before = shorter.contexts.insert(context[k - 2]);
      const uint32_t before_it =
          ++shorter.counts.insert(ngram_key(context[k - 2], train.data[i])).continuation;
      ++shorter_before.continuation;
      shorter_before.continuation_types += before_it == 1;
    }
  }
}

void NgramModel::probabilities(View<const int32_t, 1> tokens, int64_t at, double* p) const {
  uint64_t context[kMaxOrder];
  const int orders = context_keys(tokens, at, order_, context);
  double shorter = 1.0 / static_cast<double>(vocab_size_);  // Q_{k-1}
  for (int k = 1; k <= order_; ++k) {
    const Level& level = levels_[static_cast<size_t>(k - 1)];
    const Context* before = k <= orders ? level.contexts.find(context[k - 1]) : nullptr;
    const Count* gram =
        before ? level.counts.find(ngram_key(context[k - 1], tokens.data[at])) : nullptr;
    const Context h = before ? *before : Context{};
    const Count hw = gram ? *gram : Count{};
    const auto interpolated = [&](double discount, uint32_t count, uint32_t all, uint32_t types) {
      return all == 0 ? shorter
                      : (std::max(count - discount, 0.0) + discount * types * shorter) / all;
    };
    p[k - 1] = interpolated(level.discount, hw.count, h.count, h.types);
    shorter = interpolated(level.continuation_discount, hw.continuation, h.continuation,
                           h.continuation_types);
  }
}

double NgramModel::probability(int order, View<const int32_t, 1> tokens) const {
  CHECK(order >= 1 && order <= order_ && tokens.size() > 0, "ngram: order %d of %d, %ld tokens",
        order, order_, long{tokens.size()});
  double p[kMaxOrder];
  probabilities(tokens, tokens.size() - 1, p);
  return p[order - 1];
}

std::vector<double> NgramModel::losses(View<const int32_t, 1> tokens) const {
  CHECK(tokens.size() > 1, "ngram: %ld tokens", long{tokens.size()});
  std::vector<double> nats(static_cast<size_t>(order_), 0.0);
  double p[kMaxOrder];
  for (int64_t i = 1; i < tokens.size(); ++i) {
    probabilities(tokens, i, p);
    for (int k = 0; k < order_; ++k) nats[static_cast<size_t>(k)] -= std::log(p[k]);
  }
  for (double& n : nats) n /= static_cast<double>(tokens.size() - 1);
  return nats;
}

}  // namespace assay
