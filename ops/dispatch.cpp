#include "ops/dispatch.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kPieceTokens = kDispatchPieceTokens;

}  // namespace

int64_t dispatch_pieces(int64_t tokens) {
  return ceil_div(tokens, kPieceTokens);
}

namespace cpu {

void dispatch(Exec on, const Dispatch& a) {
  const int64_t tokens = a.expert.dim[0], k = a.expert.dim[1], experts = a.partial.dim[1];
  const int64_t pieces = dispatch_pieces(tokens);

  parallel_ranges(on, tokens, kPieceTokens, [&](int64_t begin, int64_t end) {
    int32_t* count = a.partial.row(begin / kPieceTokens);
    std::fill(count, count + experts, 0);
    for (int64_t i = begin * k; i < end * k; ++i) {
      const int32_t e = a.expert[i];
      CHECK(e >= 0 && e < experts, "dispatch: token %ld has expert %d of %ld", long(i / k), int(e),
            long(experts));
      ++count[e];
    }
  });

  // Turns counts into starts: over the pieces of an expert, then over experts.
  parallel_ranges(on, experts, 512, [&](int64_t begin, int64_t end) {
    std::fill(a.offsets.data + begin, a.offsets.data + end, 0);
    for (int64_t p = 0; p < pieces; ++p) {
      int32_t* start = a.partial.row(p);
#pragma omp simd
      for (int64_t e = begin; e < end; ++e) {
        const int32_t n = start[e];
        start[e] = a.offsets.data[e];
        a.offsets.data[e] += n;
      }
    }
  });
  int32_t first = 0;
  for (int64_t e = 0; e <= experts; ++e) {
    const int32_t n = e < experts ? a.offsets[e] : 0;
    a.offsets[e] = first;
    first += n;
  }

  parallel_ranges(on, tokens, kPieceTokens, [&](int64_t begin, int64_t end) {
    int32_t* next = a.partial.row(begin / kPieceTokens);
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < k; ++i) {
        const int32_t e = a.expert.at(t, i);
        const int32_t slot = a.offsets[e] + next[e]++;
        a.slot.at(t, i) = slot;
        a.token[slot] = static_cast<int32_t>(t);
      }
    }
  });
}

}  // namespace cpu

void dispatch(Exec on, const Dispatch& a) {
  const ProfileScope timed(on, "dispatch", dispatch_cost(a));
  const int64_t tokens = a.expert.dim[0], k = a.expert.dim[1], experts = a.partial.dim[1];
  CHECK(a.offsets.dim[0] == experts + 1 && a.token.dim[0] == tokens * k &&
            a.slot.dim[0] == tokens && a.slot.dim[1] == k,
        "dispatch: %s, %ld experts",
        shapes("offsets", a.offsets, "token", a.token, "slot", a.slot, "expert", a.expert).c_str(),
        long(experts));
  CHECK(a.partial.dim[0] >= dispatch_pieces(tokens) && tokens * k <= INT32_MAX, "dispatch: %s",
        shapes("partial", a.partial, "expert", a.expert).c_str());
  if (on.gpu) return gpu::dispatch(on, a);
  cpu::dispatch(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(dispatch, Dispatch)

void require_dispatch_room(int64_t experts, int64_t k, int64_t shared_bytes) {
  constexpr int64_t kOthersBytes = 7 << 10;  // shared memory that is not dispatch_slots' lists
  if (dispatch_shared_bytes(experts, k) <= shared_bytes - kOthersBytes) return;
  throw UserError(
      strprintf("%ld experts with %ld per token do not fit into the shared memory of this GPU",
                long(experts), long(k)),
      "use fewer experts");
}
}  // namespace gpu

}  // namespace assay
