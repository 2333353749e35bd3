// Draws the next token from the model's logits z.
//
//   temperature 0  the first of the largest logits
//   else           w[v] = exp((z[v] - max z) / temperature)
//                  top_k > 0: keeps only the top_k largest
//                  top_p < 1: keeps only the fewest largest whose share of the remaining w is at
//                  least top_p
//                  draws among the remaining ids with probabilities proportional to w
//
// Of equal logits the smaller id counts as larger. A draw is a function of (seed, text, position)
// and the logits; the other texts of a batch do not matter.
#pragma once

#include <cstdint>

#include "base/view.h"

namespace assay {

struct Sampling {
  double temperature = 1.0;  // >= 0
  int64_t top_k = 0;         // 0 = all
  double top_p = 1.0;        // in (0, 1]
  uint64_t seed = 1;
};

// logits: (V), one of them finite, none NaN or +inf; an id of -inf is not drawn. text: index of the
// text. position: of the drawn token.
int32_t sample_token(View<const float, 1> logits, const Sampling& sampling, int64_t text,
                     int64_t position);

}  // namespace assay
