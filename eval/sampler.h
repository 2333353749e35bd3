// The next token from the model's logits.
//
//   temperature 0: the first of the largest
//   else  w[v] = exp((z[v] - max z) / temperature)
//         top_k > 0: only the top_k largest stay; top_p < 1: then only the fewest largest whose share of what stayed is
//         at least top_p. Of equal logits the smaller id counts as larger.
//         the draw goes by w among those that stay
//
// A draw is a function of (seed, text, position) and the logits: neither the texts beside nor their
// number matter.
#pragma once

#include <cstdint>

#include "base/view.h"

namespace assay {

struct Sampling {
  double temperature = 1.0;  // >= 0
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // in (0, 1]
  uint64_t seed = 1;
};

// `position` is that of the token drawn. logits (V): finite.
int32_t sample_token(View<const float, 1> logits, const Sampling& sampling, int64_t text,
                     int64_t position);

}  // namespace assay
