#include "ops/rmsnorm.h"

#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

constexpr int64_t kRowsPerBlock = 64;  // rows of one dweight partial; fixes the order of the sum

}  // namespace

int64_t rmsnorm_backward_blocks(int64_t rows) {
  return ceil_div(rows, kRowsPerBlock);
}

namespace cpu {

template <typename T>
void rmsnorm_forward(Exec on, const RmsNormForward<T>& a) {
  const int64_t width = a.x.dim[1];
  parallel_ranges(on, a.x.dim[0], kRowsPerBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* r = a.x.row(i);
      if (!a.branch.empty()) {
        const T* x = a.x.row(i);
        const T* branch = a.branch.row(i);
        T* sum = a.resid.row(i);
        for_vectors(width, [&](int64_t c, auto count) {
          store(sum + c, load(x + c, count) + a.gain * load(branch + c, count), count);
        });
        r = sum;
      }
      f32x16 squares = {};
      for_vectors(width, [&](int64_t c, auto count) {
        const f32x16 v = load(r + c, count);
        squares += v * v;
      });
      const float rstd = 1.0f / std::sqrt(horizontal_sum(squares) / float(width) + a.eps);
      a.rstd[i] = rstd;
      T* y = a.y.row(i);
      const float* weight = a.weight.data;
      for_vectors(width, [&](int64_t c, auto count) {
        store(y + c, load(weight + c, count) * (load(r + c, count) * rstd), count);
      });
      update_amax(a.amax, y, width);
    }
  });
}

template <typename T>
void rmsnorm_backward(Exec on, const RmsNormBackward<T>& a) {
  const int64_t rows = a.dy.dim[0], width = a.dy.dim[1];
  const float* weight = a.weight.data;
  parallel_ranges(on, rows, kRowsPerBlock, [&](int64_t begin, int64_t end) {
    float* partial = a.partial.row(begin / kRowsPerBlock);
    for (int64_t c = 0; c < width; ++c) partial[c] = 0;
    for (int64_t i = begin; i < end; ++i) {
      const T* dy = a.dy.row(i);
      const T* r = a.resid.row(i);
      const float rstd = a.rstd[i];
      f32x16 dot = {};
      for_vectors(width, [&](int64_t c, auto count) {
        dot += load(weight + c, count) * load(dy + c, count) * (load(r + c, count) * rstd);
      });
      const float mean = horizontal_sum(dot) / float(width);
      T* dresid = a.dresid.row(i);
      for_vectors(width, [&](int64_t c, auto count) {
        const f32x16 rhat = load(r + c, count) * rstd, d = load(dy + c, count);
        store(partial + c, load(partial + c, count) + d * rhat, count);
        const f32x16 dr = rstd * (load(weight + c, count) * d - rhat * mean);
        store(dresid + c, load(dresid + c, count) + dr, count);
      });
      if (!a.dbranch.empty()) {
        T* dbranch = a.dbranch.row(i);
        for_vectors(width, [&](int64_t c, auto count) {
          store(dbranch + c, a.gain * load(dresid + c, count), count);
        });
        update_amax(a.amax, dbranch, width);
      } else {
        update_amax(a.amax, dresid, width);
      }
    }
  });
  const int64_t blocks = rmsnorm_backward_blocks(rows);
  for (int64_t b = 0; b < blocks; ++b) {
    const float* partial = a.partial.row(b);
    for (int64_t c = 0; c < width; ++c) a.dweight[c] += partial[c];
  }
}

}  // namespace cpu

template <typename T>
void rmsnorm_forward(Exec on, const RmsNormForward<T>& a) {
  const ProfileScope timed(on, "rmsnorm_forward", rmsnorm_forward_cost(a));
  CHECK(a.x.dim[1] == a.weight.dim[0] && a.y.dim[0] == a.x.dim[0] && a.y.dim[1] == a.x.dim[1] &&
            a.rstd.dim[0] == a.x.dim[0],
        "rmsnorm_forward: %s",
        shapes("x", a.x, "y", a.y, "rstd", a.rstd, "weight", a.weight).c_str());
  CHECK(a.branch.empty() || (a.branch.size() == a.x.size() && a.resid.size() == a.x.size()),
        "rmsnorm_forward: %s", shapes("branch", a.branch, "resid", a.resid, "x", a.x).c_str());
  if (on.gpu) return gpu::rmsnorm_forward(on, a);
  cpu::rmsnorm_forward(on, a);
}

template <typename T>
void rmsnorm_backward(Exec on, const RmsNormBackward<T>& a) {
  const ProfileScope timed(on, "rmsnorm_backward", rmsnorm_backward_cost(a));
  CHECK(a.dresid.size() == a.dy.size() && a.resid.size() == a.dy.size() &&
            a.weight.dim[0] == a.dy.dim[1] && a.dweight.dim[0] == a.dy.dim[1] &&
            a.rstd.dim[0] == a.dy.dim[0],
        "rmsnorm_backward: %s",
        shapes("dy", a.dy, "dresid", a.dresid, "resid", a.resid, "weight", a.weight, "rstd", a.rstd)
            .c_str());
  CHECK(a.partial.dim[0] >= rmsnorm_backward_blocks(a.dy.dim[0]) && a.partial.dim[1] == a.dy.dim[1],
        "rmsnorm_backward: %s", shapes("partial", a.partial, "dy", a.dy).c_str());
  if (on.gpu) return gpu::rmsnorm_backward(on, a);
  cpu::rmsnorm_backward(on, a);
}

template void rmsnorm_forward<float>(Exec, const RmsNormForward<float>&);
template void rmsnorm_forward<bf16>(Exec, const RmsNormForward<bf16>&);
template void rmsnorm_backward<float>(Exec, const RmsNormBackward<float>&);
template void rmsnorm_backward<bf16>(Exec, const RmsNormBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(rmsnorm_forward, RmsNormForward<float>)
ASSAY_GPU_ABSENT(rmsnorm_forward, RmsNormForward<bf16>)
ASSAY_GPU_ABSENT(rmsnorm_backward, RmsNormBackward<float>)
ASSAY_GPU_ABSENT(rmsnorm_backward, RmsNormBackward<bf16>)
}  // namespace gpu

}  // namespace assay
