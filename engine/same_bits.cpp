#include "engine/same_bits.h"

#include "base/check.h"
#include "base/hash.h"

namespace assay {

uint64_t bias_hash(const std::vector<RouterLayerState>& layers) {
  uint64_t hash = 0;
  int64_t at = 0;
  for (const RouterLayerState& layer : layers) {
    hash += hash_floats(layer.bias.data, layer.bias.size(), at);
    at += layer.bias.size();
  }
  return hash;
}

std::string different_bits(const std::vector<RankBits>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const RankBits &first = ranks.front(), &other = ranks[r];
    const bool same_parameters = other.parameters == first.parameters;
    if (same_parameters && other.bias == first.bias) continue;
    const auto hash = [&](const RankBits& of) {
      return static_cast<unsigned long long>(same_parameters ? of.bias : of.parameters);
    };
    return strprintf("rank %zu has other %s than rank 0: hash %08llx, not %08llx", r,
                     same_parameters ? "router biases" : "parameters", hash(other), hash(first));
  }
  return "";
}

}  // namespace assay
