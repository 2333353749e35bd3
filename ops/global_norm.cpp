#include "ops/global_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

// Doubles of one vector of the CPU: g++ 12 computes with longer ones in memory.
#if defined(__AVX512F__)
constexpr int kDoubles = 8;
#else
constexpr int kDoubles = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kDoubles)));
using Doubles = double __attribute__((vector_size(8 * kDoubles)));
using i32x8 = int32_t __attribute__((vector_size(32)));

constexpr int64_t kLanes = 32;  // independent sums: fewer would wait for each addition

int32_t is_non_finite(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7F800000u) == 0x7F800000u;
}

int64_t pieces_of(const View<const float, 1>& g) {
  return ceil_div(g.dim[0], kNormPiece);
}

// The sum of the squares of g[begin, end), and how many of them are not finite.
void sum_squares(const float* g, int64_t begin, int64_t end, double* partial) {
  constexpr int64_t kAhead = 1024;  // elements, 4 KB: the hardware stops at the end of a page
  Doubles sum[kLanes / kDoubles] = {};
  i32x8 minus_bad[kLanes / 8] = {};  // a comparison that holds is -1
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    __builtin_prefetch(g + i + kAhead);
    __builtin_prefetch(g + i + kAhead + kLanes / 2);
#pragma GCC unroll 8
    for (int64_t v = 0; v < kLanes / kDoubles; ++v) {
      Floats x;
      std::memcpy(&x, g + i + kDoubles * v, sizeof x);
      const Doubles wide = __builtin_convertvector(x, Doubles);
      sum[v] += wide * wide;  // the product of two floats is exact
    }
#pragma GCC unroll 4
    for (int64_t v = 0; v < kLanes / 8; ++v) {
      i32x8 x;
      std::memcpy(&x, g + i + 8 * v, sizeof x);
      minus_bad[v] += (x & 0x7F800000) == 0x7F800000;
    }
  }
  double lane[kLanes];
  std::memcpy(lane, sum, sizeof lane);
  int32_t bad = 0;
  for (const i32x8& v : minus_bad) {
    for (int l = 0; l < 8; ++l) bad -= v[l];
  }
  for (; i < end; ++i) {
    lane[0] += double(g[i]) * double(g[i]);
    bad += is_non_finite(g[i]);
  }
  double squares = 0;
  for (const double sum : lane) squares += sum;
  partial[0] = squares;
  partial[1] = bad;
}

}  // namespace

int64_t global_norm_pieces(GradientList grads) {
  int64_t pieces = 0;
  for (int64_t i = 0; i < grads.dim[0]; ++i) pieces += pieces_of(grads[i]);
  return pieces;
}

namespace cpu {

// All tensors in one parallel loop: a model has many small ones.
void square_sums(Exec on, const SquareSums& a) {
  parallel_for(on, global_norm_pieces(a.grads), [&](int64_t piece) {
    int64_t tensor = 0, before = 0;  // pieces of the tensors before this piece's
    while (piece >= before + pieces_of(a.grads[tensor])) before += pieces_of(a.grads[tensor++]);
    const View<const float, 1>& grad = a.grads[tensor];
    const int64_t begin = (piece - before) * kNormPiece;
    sum_squares(grad.data, begin, std::min(grad.dim[0], begin + kNormPiece), a.partial.row(piece));
  });
}

void norm_of_squares(const NormOfSquares& a) {
  double squares = 0, bad = 0;
  for (int64_t p = 0; p < a.partial.dim[0]; ++p) {
    squares += a.partial.at(p, 0);
    bad += a.partial.at(p, 1);
  }
  const double norm = std::sqrt(squares);
  a.norm[0] = static_cast<float>(norm);
  a.clip[0] = a.max_norm > 0 && norm > a.max_norm ? static_cast<float>(a.max_norm / norm) : 1.0f;
  a.non_finite[0] = static_cast<int64_t>(bad);
}

}  // namespace cpu

void square_sums(Exec on, const SquareSums& a) {
  const ProfileScope timed(on, "square_sums", square_sums_cost(a));
  const int64_t pieces = global_norm_pieces(a.grads);
  CHECK(a.partial.dim[0] == pieces && a.partial.dim[1] == 2, "square_sums: %s for %ld pieces",
        shapes("partial", a.partial).c_str(), long(pieces));
  if (on.gpu) return gpu::square_sums(on, a);
  cpu::square_sums(on, a);
}

void norm_of_squares(Exec on, const NormOfSquares& a) {
  const ProfileScope timed(on, "norm_of_squares", norm_of_squares_cost(a));
  CHECK(
      a.norm.dim[0] == 1 && a.clip.dim[0] == 1 && a.non_finite.dim[0] == 1 && a.partial.dim[1] == 2,
      "norm_of_squares: %s",
      shapes("norm", a.norm, "clip", a.clip, "non_finite", a.non_finite, "partial", a.partial)
          .c_str());
  if (on.gpu) return gpu::norm_of_squares(on, a);
  cpu::norm_of_squares(a);
}

void global_norm(Exec on, const GlobalNorm& a) {
  const ProfileScope timed(on, "global_norm", global_norm_cost(a));
  const int64_t pieces = global_norm_pieces(a.grads);
  CHECK(a.partial.dim[0] >= pieces, "global_norm: %s for %ld pieces",
        shapes("partial", a.partial).c_str(), long(pieces));
  const View<double, 2> partial = a.partial.rows(0, pieces);
  on.profile = nullptr;  // both count as global_norm
  square_sums(on, {.partial = partial, .grads = a.grads});
  norm_of_squares(on, {.norm = a.norm,
                       .clip = a.clip,
                       .non_finite = a.non_finite,
                       .partial = partial,
                       .max_norm = a.max_norm});
}

namespace gpu {
ASSAY_GPU_ABSENT(square_sums, SquareSums)
ASSAY_GPU_ABSENT(norm_of_squares, NormOfSquares)
}  // namespace gpu

}  // namespace assay
