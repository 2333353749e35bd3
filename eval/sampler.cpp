#include "eval/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace assay {

namespace {

struct Candidate {
  int32_t id;
  double weight;
};

// With 53 bits, so that tokens rarer than 2^-32 keep their probability; below 1, so that draw()
// finds an id that has a weight.
double uniform(const Sampling& sampling, int64_t text, int64_t position) {
  const RandomKey key{sampling.seed, stream_id("sample"), static_cast<uint32_t>(text)};
  const auto words = random_block(key, static_cast<uint64_t>(position));
  return uniform_open(words[0], words[1]);
}

// The ids that top_k and top_p keep, largest logit first. A heap yields them one by one, so the
// vocabulary is never sorted.
std::vector<Candidate> largest(View<const float, 1> logits, const Sampling& s, double top) {
  const auto vocab = static_cast<size_t>(logits.dim[0]);
  const auto weight = [&](int32_t id) {
    return std::exp((double(logits[id]) - top) / s.temperature);
  };
  std::vector<int32_t> heap(vocab);
  std::iota(heap.begin(), heap.end(), 0);
  const auto smaller = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::make_heap(heap.begin(), heap.end(), smaller);
  std::vector<Candidate> taken;
  const auto take = [&] {
    std::pop_heap(heap.begin(), heap.end(), smaller);
    taken.push_back({heap.back(), weight(heap.back())});
    heap.pop_back();
    return taken.back().weight;
  };
  double total = 0;
  if (s.top_k > 0) {
    while (!heap.empty() && int64_t(taken.size()) < s.top_k) total += take();
  } else {
    for (size_t v = 0; v < vocab; ++v) total += weight(static_cast<int32_t>(v));
  }
  if (s.top_p >= 1) return taken;
  double share = 0;
  size_t count = 0;
  while (share < s.top_p * total && (count < taken.size() || (s.top_k == 0 && !heap.empty()))) {
    share += count < taken.size() ? taken[count].weight : take();
    ++count;
  }
  taken.resize(count);
  return taken;
}

int32_t draw(const std::vector<Candidate>& from, double share) {
  double total = 0, sum = 0;
  for (const Candidate& c : from) total += c.weight;
  for (const Candidate& c : from) {
    sum += c.weight;
    if (share * total < sum) return c.id;
  }
  return from.back().id;
}

}  // namespace

int32_t sample_token(View<const float, 1> logits, const Sampling& s, int64_t text,
                     int64_t position) {
  CHECK(logits.dim[0] > 0 && s.temperature >= 0 && s.top_k >= 0 && s.top_p > 0 && s.top_p <= 1,
        "sample_token: %ld logits, temperature %g, top_k %ld, top_p %g", long(logits.dim[0]),
        s.temperature, long(s.top_k), s.top_p);
  const float* const end = logits.data + logits.dim[0];
  const float* const first = std::max_element(logits.data, end);
  if (s.temperature == 0) return static_cast<int32_t>(first - logits.data);
  const bool some = (s.top_k > 0 && s.top_k < logits.dim[0]) || s.top_p < 1;
  std::vector<Candidate> candidates;
  if (some) {
    candidates = largest(logits, s, double(*first));
    // In the order of ids, as without limits, so that limits that keep all ids change nothing.
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  } else {
    for (int64_t v = 0; v < logits.dim[0]; ++v) {
      candidates.push_back({static_cast<int32_t>(v),
                            std::exp((double(logits[v]) - double(*first)) / s.temperature)});
    }
  }
  return draw(candidates, uniform(s, text, position));
}

}  // namespace assay
