#include "ops/newton_schulz.h"

#include <cmath>

#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/cast.h"
#include "ops/gpu/absent.h"
#include "ops/grouped_linear.h"
#include "ops/zero.h"

namespace assay {

namespace cpu {

void newton_schulz_norm(Exec on, const NewtonSchulzNorm& a) {
  const int64_t n = a.x.dim[0], rows = a.x.dim[1], size = rows * a.x.dim[2];
  const int64_t pieces = newton_schulz_pieces(size), gram = std::min(rows, a.x.dim[2]);
  for (int64_t e = 0; e <= n; ++e) {
    a.offsets.at(0, e) = int32_t(e * rows);
    a.offsets.at(1, e) = int32_t(e * gram);
  }
  parallel_for(on, n * pieces, [&](int64_t p) {
    const int64_t begin = p % pieces * kNewtonSchulzPiece;
    const int64_t end = std::min(size, begin + kNewtonSchulzPiece);
    const bf16* x = a.x.data + p / pieces * size;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += double(float(x[i])) * double(float(x[i]));
    a.partial.at(p / pieces, p % pieces) = sum;
  });
}

void newton_schulz_scale(Exec on, const NewtonSchulzScale& a) {
  const int64_t n = a.x.dim[0], size = a.x.dim[1] * a.x.dim[2];
  const int64_t pieces = newton_schulz_pieces(size);
  parallel_for(on, n * pieces, [&](int64_t p) {
    double sum = 0;
    for (int64_t q = 0; q < pieces; ++q) sum += a.partial.at(p / pieces, q);
    const float norm = float(std::max(std::sqrt(sum), kNewtonSchulzEps));
    const int64_t begin = p % pieces * kNewtonSchulzPiece;
    const int64_t end = std::min(size, begin + kNewtonSchulzPiece);
    bf16* x = a.x.data + p / pieces * size;
    for (int64_t i = begin; i < end; ++i) round_to(x[i], float(x[i]) / norm);
  });
}

void newton_schulz_combine(Exec on, const NewtonSchulzCombine& a) {
  parallel_ranges(on, a.x.dim[0], kNewtonSchulzPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      round_to(a.x[i], a.a * float(a.x[i]) + a.b * float(a.y[i]));
    }
  });
}

}  // namespace cpu

namespace {

bool is_tall(const NewtonSchulz& a) {
  return a.x.dim[1] > a.x.dim[2];
}

// The stack's rows one after another.
View<bf16, 2> rows_of(View<bf16, 3> x) {
  return {x.data, {x.dim[0] * x.dim[1], x.dim[2]}};
}

View<bf16, 1> flat(View<bf16, 3> x) {
  return {x.data, {x.size()}};
}

WeightStack<bf16> packed(Exec on, View<bf16, 3> x, View<std::byte, 1> into) {
  if (!on.gpu) weight_stack_pack<bf16>(on, {.packed = into, .plain = x});
  return {.plain = x, .packed = into};
}

void combine(Exec on, View<bf16, 3> x, View<bf16, 3> y, double a, double b) {
  const NewtonSchulzCombine c{.x = flat(x), .y = flat(y), .a = float(a), .b = float(b)};
  if (on.gpu) return gpu::newton_schulz_combine(on, c);
  cpu::newton_schulz_combine(on, c);
}

// gram = b A + c A A
void polynomial(Exec on, const NewtonSchulz& a, View<const int32_t, 1> gram_rows) {
  grouped_linear_forward<bf16>(on, {.y = rows_of(a.square),
                                    .x = rows_of(a.gram),
                                    .offsets = gram_rows,
                                    .weight = packed(on, a.gram, a.packed_gram)});
  combine(on, a.gram, a.square, kNewtonSchulzB, kNewtonSchulzC);
}

void wide_iteration(Exec on, const NewtonSchulz& a, View<const int32_t, 1> rows) {
  const WeightStack<bf16> x = packed(on, a.x, a.packed_x);
  grouped_linear_forward<bf16>(
      on, {.y = rows_of(a.gram), .x = rows_of(a.x), .offsets = rows, .weight = x});
  polynomial(on, a, rows);
  grouped_linear_dgrad<bf16>(
      on, {.dx = rows_of(a.product), .dy = rows_of(a.gram), .offsets = rows, .weight = x});
}

void tall_iteration(Exec on, const NewtonSchulz& a, View<const int32_t, 1> rows,
                    View<const int32_t, 1> gram_rows) {
  zero(on, a.gram_sums);
  grouped_linear_wgrad<bf16>(on, {.dweight = a.gram_sums,
                                  .dy = rows_of(a.x),
                                  .x = rows_of(a.x),
                                  .offsets = rows,
                                  .most_rows = a.x.dim[1]});
  cast<bf16, float>(on, {.y = flat(a.gram), .x = {a.gram_sums.data, {a.gram_sums.size()}}});
  polynomial(on, a, gram_rows);
  grouped_linear_forward<bf16>(on, {.y = rows_of(a.product),
                                    .x = rows_of(a.x),
                                    .offsets = rows,
                                    .weight = packed(on, a.gram, a.packed_gram)});
}

void normalise(Exec on, const NewtonSchulz& a) {
  const NewtonSchulzNorm norm{.partial = a.partial, .offsets = a.offsets, .x = a.x};
  const NewtonSchulzScale scale{.x = a.x, .partial = a.partial};
  if (on.gpu) {
    gpu::newton_schulz_norm(on, norm);
    gpu::newton_schulz_scale(on, scale);
    return;
  }
  cpu::newton_schulz_norm(on, norm);
  cpu::newton_schulz_scale(on, scale);
}

}  // namespace

int64_t newton_schulz_workspace_bytes(Backend backend, int64_t n, int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  return std::max({grouped_workspace_bytes<bf16>(backend, n * rows, n, m, cols, rows),
                   grouped_workspace_bytes<bf16>(backend, n * rows, n, m, m, rows),
                   grouped_workspace_bytes<bf16>(backend, n * m, n, m, m, m)});
}

int64_t newton_schulz_packed_x(int64_t n, int64_t rows, int64_t cols) {
  return rows > cols ? 0 : weight_stack_pack_bytes<bf16>(n, rows, cols);
}

int64_t newton_schulz_packed_gram(int64_t n, int64_t rows, int64_t cols) {
  const int64_t m = std::min(rows, cols);
  return weight_stack_pack_bytes<bf16>(n, m, m);
}

void newton_schulz(Exec on, const NewtonSchulz& a) {
  const int64_t n = a.x.dim[0], rows = a.x.dim[1], cols = a.x.dim[2], m = std::min(rows, cols);
  CHECK(a.product.size() == a.x.size() && a.gram.size() == n * m * m &&
            a.square.size() == n * m * m && (rows <= cols || a.gram_sums.size() == n * m * m),
        "newton_schulz: %s",
        shapes("x", a.x, "product", a.product, "gram", a.gram, "square", a.square).c_str());
  CHECK(
      a.offsets.size() == 2 * (n + 1) && a.partial.size() == n * newton_schulz_pieces(rows * cols),
      "newton_schulz: %s", shapes("offsets", a.offsets, "partial", a.partial).c_str());
  CHECK(n * rows < int64_t{1} << 31, "newton_schulz: %ld matrices of %ld rows", long(n),
        long(rows));
  if (a.x.size() == 0) return;
  const ProfileScope timed(on, "newton_schulz", newton_schulz_cost(a));
  normalise(on, a);
  const View<const int32_t, 1> x_rows{a.offsets.row(0), {n + 1}};
  const View<const int32_t, 1> gram_rows{a.offsets.row(1), {n + 1}};
  for (int64_t s = 0; s < a.steps; ++s) {
    if (is_tall(a)) {
      tall_iteration(on, a, x_rows, gram_rows);
    } else {
      wide_iteration(on, a, x_rows);
    }
    combine(on, a.x, a.product, kNewtonSchulzA, 1);
  }
}

namespace gpu {
ASSAY_GPU_ABSENT(newton_schulz_norm, NewtonSchulzNorm)
ASSAY_GPU_ABSENT(newton_schulz_scale, NewtonSchulzScale)
ASSAY_GPU_ABSENT(newton_schulz_combine, NewtonSchulzCombine)
}  // namespace gpu

}  // namespace assay
