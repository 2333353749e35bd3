#include "ops/combine.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

constexpr int64_t kPieceTokens = 32;
constexpr int64_t kChunk = 256;  // columns whose float sums stay in cache

// Asks for the slots' rows of the token that is `kTokensAhead` ahead: no hardware foresees them.
constexpr int64_t kTokensAhead = 2;
template <int kWrite, typename T>
void prefetch_slots(View<const T, 2> rows, View<const int32_t, 2> slot, int64_t t) {
  constexpr int64_t kLine = 64 / sizeof(T);
  if (t + kTokensAhead >= slot.dim[0]) return;
  for (int64_t i = 0; i < slot.dim[1]; ++i) {
    const T* row = rows.row(slot.at(t + kTokensAhead, i));
    for (int64_t c = 0; c < rows.dim[1]; c += kLine) __builtin_prefetch(row + c, kWrite, 2);
  }
}

// y[t] = add[t] + more[t] + sum_k weight(t, k) * rows[slot(t, k)]; the sum is rounded to T once.
template <typename T, typename Weight>
void sum_rows(Exec on, View<T, 2> y, View<const T, 2> rows, View<const int32_t, 2> slot,
              View<const T, 2> add, View<const T, 2> more, Weight&& weight) {
  const int64_t width = y.dim[1], k = slot.dim[1];
  parallel_ranges(on, y.dim[0], kPieceTokens, [&](int64_t begin, int64_t end) {
    alignas(64) float sum[kChunk];
    for (int64_t t = begin; t < end; ++t) {
      prefetch_slots<0>(rows, slot, t);
      for (int64_t c = 0; c < width; c += kChunk) {
        const int64_t n = std::min(kChunk, width - c);
        if (add.empty()) {
          std::fill(sum, sum + n, 0.0f);
        } else {
          const T* from = add.row(t) + c;
#pragma omp simd
          for (int64_t j = 0; j < n; ++j) sum[j] = float(from[j]);
        }
        if (!more.empty()) {
          const T* from = more.row(t) + c;
#pragma omp simd
          for (int64_t j = 0; j < n; ++j) sum[j] += float(from[j]);
        }
        for (int64_t i = 0; i < k; ++i) {
          const float w = weight(t, i);
          const T* from = rows.row(slot.at(t, i)) + c;
#pragma omp simd
          for (int64_t j = 0; j < n; ++j) sum[j] += w * float(from[j]);
        }
        T* to = y.row(t) + c;
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) round_to(to[j], sum[j]);
      }
    }
  });
}

// dout = gate * dy, and dgate = <dy, out>, slot by slot.
#if defined(__AVX512F__)
// Column c of a row is added to lane c % kLanes, the columns after the last whole kLanes to lane 0,
// and then the lanes one after the other. Such a chain waits for each of its sums, so the chains of
// several slots run side by side.
template <typename T>
class SlotGradients {
 public:
  explicit SlotGradients(float* dgate) : dgate_(dgate) {}

  void add(T* dout, const T* dy, const T* out, float gate, int64_t width) {
    f32x16 sum[kVectors] = {};
    int64_t c = 0;
    for (; c + kLanes <= width; c += kLanes) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = c + v * kVector;
        const f32x16 d = load(dy + at);
        sum[v] += d * load(out + at);
        store(dout + at, gate * d);
      }
    }
    float* lane = lane_[waiting_];
    for (int v = 0; v < kVectors; ++v) store(lane + v * kVector, sum[v]);
    for (; c < width; ++c) {
      lane[0] = std::fma(float(dy[c]), float(out[c]), lane[0]);
      round_to(dout[c], gate * float(dy[c]));
    }
    if (++waiting_ == kSlots) finish();
  }
  // Writes the gradients of the slots that wait for theirs.
  void finish() {
    float dot[kSlots] = {};
    for (int l = 0; l < kLanes; ++l) {
      for (int i = 0; i < kSlots; ++i) dot[i] += lane_[i][l];
    }
    dgate_ = std::copy_n(dot, waiting_, dgate_);
    waiting_ = 0;
  }

 private:
  static constexpr int kVectors = 4 / int(sizeof(T)), kLanes = kVectors * kVector, kSlots = 8;

  float* dgate_;  // of the first slot that waits
  int waiting_ = 0;
  alignas(64) float lane_[kSlots][kLanes] = {};
};
#else
template <typename T>
class SlotGradients {
 public:
  explicit SlotGradients(float* dgate) : dgate_(dgate) {}

  // Not inlined: a copy of the loop could have another order of sums.
  [[gnu::noinline]] void add(T* dout, const T* dy, const T* out, float gate, int64_t width) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; ++c) {
      dot += float(dy[c]) * float(out[c]);
      round_to(dout[c], gate * float(dy[c]));
    }
    *dgate_++ = dot;
  }
  void finish() {}

 private:
  float* dgate_;  // of the next slot
};
#endif

}  // namespace

namespace cpu {

template <typename T>
void combine_forward(Exec on, const CombineForward<T>& a) {
  sum_rows(on, a.y, a.expert_out, a.slot, a.add, a.resid,
           [&](int64_t t, int64_t i) { return a.gate.at(t, i); });
}

template <typename T>
void reduce_by_token(Exec on, const ReduceByToken<T>& a) {
  sum_rows(on, a.dx, a.dexpert_in, a.slot, a.add, {}, [](int64_t, int64_t) { return 1.0f; });
}

template <typename T>
void combine_backward(Exec on, const CombineBackward<T>& a) {
  const int64_t width = a.dy.dim[1], k = a.slot.dim[1];
  parallel_ranges(on, a.dy.dim[0], kPieceTokens, [&](int64_t begin, int64_t end) {
    SlotGradients<T> gradients(a.dgate.row(begin));
    for (int64_t t = begin; t < end; ++t) {
      prefetch_slots<0>(a.expert_out, a.slot, t);
      prefetch_slots<1>(View<const T, 2>(a.dexpert_out), a.slot, t);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t slot = a.slot.at(t, i);
        const float gate = a.gate.at(t, i);
        T* dout = a.dexpert_out.row(slot);
        gradients.add(dout, a.dy.row(t), a.expert_out.row(slot), gate, width);
        update_amax(a.amax, dout, width);
      }
    }
    gradients.finish();
  });
}

}  // namespace cpu

template <typename T>
void combine_forward(Exec on, const CombineForward<T>& a) {
  const ProfileScope timed(on, "combine_forward", combine_forward_cost(a));
  CHECK(a.y.dim[0] == a.slot.dim[0] && a.y.dim[1] == a.expert_out.dim[1] &&
            a.gate.dim[0] == a.slot.dim[0] && a.gate.dim[1] == a.slot.dim[1] &&
            a.expert_out.dim[0] == a.slot.size() && (a.add.empty() || a.add.size() == a.y.size()) &&
            (a.resid.empty() || a.resid.size() == a.y.size()),
        "combine_forward: %s",
        shapes("y", a.y, "expert_out", a.expert_out, "slot", a.slot, "gate", a.gate, "add", a.add,
               "resid", a.resid)
            .c_str());
  if (on.gpu) return gpu::combine_forward(on, a);
  cpu::combine_forward(on, a);
}

template <typename T>
void combine_backward(Exec on, const CombineBackward<T>& a) {
  const ProfileScope timed(on, "combine_backward", combine_backward_cost(a));
  CHECK(a.dy.dim[0] == a.slot.dim[0] && a.dy.dim[1] == a.expert_out.dim[1] &&
            a.gate.dim[0] == a.slot.dim[0] && a.gate.dim[1] == a.slot.dim[1] &&
            a.dgate.size() == a.gate.size() && a.expert_out.dim[0] == a.slot.size() &&
            a.dexpert_out.size() == a.expert_out.size(),
        "combine_backward: %s",
        shapes("dy", a.dy, "expert_out", a.expert_out, "dexpert_out", a.dexpert_out, "slot", a.slot,
               "gate", a.gate, "dgate", a.dgate)
            .c_str());
  if (on.gpu) return gpu::combine_backward(on, a);
  cpu::combine_backward(on, a);
}

template <typename T>
void reduce_by_token(Exec on, const ReduceByToken<T>& a) {
  const ProfileScope timed(on, "reduce_by_token", reduce_by_token_cost(a));
  CHECK(a.dx.dim[0] == a.slot.dim[0] && a.dx.dim[1] == a.dexpert_in.dim[1] &&
            a.dexpert_in.dim[0] == a.slot.size() && (a.add.empty() || a.add.size() == a.dx.size()),
        "reduce_by_token: %s",
        shapes("dx", a.dx, "dexpert_in", a.dexpert_in, "slot", a.slot, "add", a.add).c_str());
  if (on.gpu) return gpu::reduce_by_token(on, a);
  cpu::reduce_by_token(on, a);
}

template void combine_forward<float>(Exec, const CombineForward<float>&);
template void combine_forward<bf16>(Exec, const CombineForward<bf16>&);
template void combine_backward<float>(Exec, const CombineBackward<float>&);
template void combine_backward<bf16>(Exec, const CombineBackward<bf16>&);
template void reduce_by_token<float>(Exec, const ReduceByToken<float>&);
template void reduce_by_token<bf16>(Exec, const ReduceByToken<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(combine_forward, CombineForward<float>)
ASSAY_GPU_ABSENT(combine_forward, CombineForward<bf16>)
ASSAY_GPU_ABSENT(combine_backward, CombineBackward<float>)
ASSAY_GPU_ABSENT(combine_backward, CombineBackward<bf16>)
ASSAY_GPU_ABSENT(reduce_by_token, ReduceByToken<float>)
ASSAY_GPU_ABSENT(reduce_by_token, ReduceByToken<bf16>)
}  // namespace gpu

}  // namespace assay
