// Choices of experts for the cases of the ops after the router.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"

namespace assay {

enum class Load {
  kRandom,    // K distinct experts per token, uniform
  kOneHot,    // every token chooses experts E-1, E-2, ...; the others have no tokens
  kOddsOnly,  // only odd ids, so that experts without tokens are between the others; 2 K <= E
};
inline std::string load_name(Load load) {
  return load == Load::kRandom ? "random" : load == Load::kOneHot ? "one-hot" : "odds-only";
}

// (N K) expert ids, distinct within a token.
inline std::vector<int64_t> choose_experts(int64_t tokens, int64_t experts, int64_t k, Load load) {
  RandomSequence random({7, stream_id("experts"), 0});
  std::vector<int64_t> chosen;
  for (int64_t t = 0; t < tokens; ++t) {
    const size_t first = chosen.size();
    while (int64_t(chosen.size() - first) < k) {
      const int64_t i = int64_t(chosen.size() - first);
      const int64_t e = load == Load::kOneHot ? experts - 1 - i
                        : load == Load::kRandom
                            ? int64_t(random.below(uint32_t(experts)))
                            : 1 + 2 * int64_t(random.below(uint32_t(experts / 2)));
      const auto begin = chosen.begin() + int64_t(first);
      if (std::find(begin, chosen.end(), e) == chosen.end()) chosen.push_back(e);
    }
  }
  return chosen;
}

}  // namespace assay
