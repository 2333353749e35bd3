#include "ops/swiglu.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

constexpr int64_t kElementsPerPiece = 8192;

int64_t rows_per_piece(int64_t width) {
  return std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, width));
}

// Asks for what is `kRowsAhead` rows ahead in memory: the hardware stops at the end of a page.
constexpr int64_t kRowsAhead = 2;
template <int kWrite, typename T>
void prefetch_row(const T* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const T* ahead = row + kRowsAhead * width;
  for (int64_t f = 0; f < width; f += kLine) __builtin_prefetch(ahead + f, kWrite, 2);
}

}  // namespace

namespace cpu {

template <typename T>
void swiglu_forward(Exec on, const SwigluForward<T>& a) {
  const int64_t width = a.h.dim[1];
  parallel_ranges(on, a.h.dim[0], rows_per_piece(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* gate = a.gate_up.row(i);
      const T* up = gate + width;
      T* h = a.h.row(i);
      prefetch_row<0>(gate, 2 * width);
      prefetch_row<1>(h, width);
      for_vectors(width, [&](int64_t f, auto count) {
        const f32x16 g = load(gate + f, count);
        store(h + f, g / (1.0f + exp_fast(-g)) * load(up + f, count), count);
      });
      update_amax(a.amax, h, width);
    }
  });
}

template <typename T>
void swiglu_backward(Exec on, const SwigluBackward<T>& a) {
  const int64_t width = a.dh.dim[1];
  parallel_ranges(on, a.dh.dim[0], rows_per_piece(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* gate = a.gate_up.row(i);
      const T* up = gate + width;
      const T* dh = a.dh.row(i);
      T* dgate = a.dgate_up.row(i);
      T* dup = dgate + width;
      prefetch_row<0>(gate, 2 * width);
      prefetch_row<0>(dh, width);
      prefetch_row<1>(dgate, 2 * width);
      for_vectors(width, [&](int64_t f, auto count) {
        const f32x16 g = load(gate + f, count), u = load(up + f, count), d = load(dh + f, count);
        const f32x16 sigmoid = 1.0f / (1.0f + exp_fast(-g));
        const f32x16 silu = g * sigmoid;
        store(dgate + f, d * u * (sigmoid + silu * (1.0f - sigmoid)), count);
        store(dup + f, d * silu, count);
      });
      update_amax(a.amax, dgate, 2 * width);
    }
  });
}

}  // namespace cpu

template <typename T>
void swiglu_forward(Exec on, const SwigluForward<T>& a) {
  const ProfileScope timed(on, "swiglu_forward", swiglu_forward_cost(a));
  CHECK(a.gate_up.dim[0] == a.h.dim[0] && a.gate_up.dim[1] == 2 * a.h.dim[1], "swiglu_forward: %s",
        shapes("h", a.h, "gate_up", a.gate_up).c_str());
  if (on.gpu) return gpu::swiglu_forward(on, a);
  cpu::swiglu_forward(on, a);
}

template <typename T>
void swiglu_backward(Exec on, const SwigluBackward<T>& a) {
  const ProfileScope timed(on, "swiglu_backward", swiglu_backward_cost(a));
  CHECK(a.gate_up.dim[0] == a.dh.dim[0] && a.gate_up.dim[1] == 2 * a.dh.dim[1] &&
            a.dgate_up.dim[0] == a.dh.dim[0] && a.dgate_up.dim[1] == 2 * a.dh.dim[1],
        "swiglu_backward: %s",
        shapes("dh", a.dh, "gate_up", a.gate_up, "dgate_up", a.dgate_up).c_str());
  if (on.gpu) return gpu::swiglu_backward(on, a);
  cpu::swiglu_backward(on, a);
}

template void swiglu_forward<float>(Exec, const SwigluForward<float>&);
template void swiglu_forward<bf16>(Exec, const SwigluForward<bf16>&);
template void swiglu_backward<float>(Exec, const SwigluBackward<float>&);
template void swiglu_backward<bf16>(Exec, const SwigluBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(swiglu_forward, SwigluForward<float>)
ASSAY_GPU_ABSENT(swiglu_forward, SwigluForward<bf16>)
ASSAY_GPU_ABSENT(swiglu_backward, SwigluBackward<float>)
ASSAY_GPU_ABSENT(swiglu_backward, SwigluBackward<bf16>)
}  // namespace gpu

}  // namespace assay
