// What passes from one sublayer to the next: the shape of a batch and the residual stream.
#pragma once

#include "base/view.h"
#include "cuda/exec.h"
#include "ops/varlen_attention.h"

namespace assay {

// B sequences of T tokens; or, in score() and extend(), one sequence of all tokens of texts of any
// length, whose bounds `segment` gives.
struct BatchShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  View<const AttentionSegment, 1> segment = {};
  View<const int32_t, 1> position = {};  // (N) with segments
  // (N) row of each token in the KV cache, which then holds the segments' prefixes.
  View<const int32_t, 1> cache_row = {};
  // ScoredRows::segment and ::kept: the queries of the last attention, and the rows that are
  // computed after it. Empty: all.
  View<const AttentionSegment, 1> last_segment = {};
  AttentionWork work = {};       // of segment
  AttentionWork last_work = {};  // of last_segment
  View<const int32_t, 1> kept = {};
  int64_t tokens() const { return batch * sequence; }
  BatchShape last_attention() const {  // the shape of the last attention, if rows are kept
    BatchShape shape = *this;
    shape.segment = last_segment;
    shape.work = last_work;
    return shape;
  }
  BatchShape after_attention() const {  // the shape after the last attention
    return kept.dim[0] == 0 ? *this : BatchShape{.batch = 1, .sequence = kept.dim[0]};
  }
};

// Where a branch finds its gradient, gain * dresid (models/decoder/scratch.h): in dresid, if the
// gain is 1 or its products multiply by the gain, or in dbranch.
enum class BranchGradient { kDresid, kDbranch };

// Whether the last op of a branch adds it to the stream, rounded once, if that op can: a combine,
// or a product that is not quantised. Else the norm of the next sublayer does.
inline bool last_op_adds(Exec on) {
  return on.gpu != nullptr;
}

template <typename T>
struct ResidualStream {
  View<T, 2> resid;        // (N, C)
  View<T, 2> branch = {};  // (N, C)   empty: resid is the whole stream
  float gain = 1.0f;
  BranchGradient gradient = BranchGradient::kDresid;
  // Amax slot of the branch's gradient, updated in backward by the op that writes it; or empty.
  View<float, 1> gradient_amax = {};
};

}  // namespace assay
