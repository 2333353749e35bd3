#include "ops/head_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/cpu_gemm/ragged.h"
#include "ops/gpu/absent.h"
#include "ops/gpu/head_loss_chunk.h"
#include "ops/weight_matrix.h"
#include "ops/zero.h"

namespace assay {

namespace {

// The weight is read twice per chunk, dweight is read and written once, so chunks are long. A
// multiple of the 96 rows that a matrix product takes at a time.
constexpr int64_t kChunkRows = 576;
constexpr int64_t kRowsPerPiece = 8;

bool is_counted(int32_t target, int32_t mask_id) {
  return target >= 0 && target != mask_id;
}

// Elements from a row of V to the next: twice an odd number of 64-byte lines. Two lines each of the
// 32 rows that a product takes together then lie in the 64 sets of an L1 cache. At a distance of V,
// most often a multiple of a large power of two, all rows would lie in the same sets.
template <typename S>
int64_t row_stride(int64_t vocab) {
  constexpr int64_t kLine = 64 / int64_t{sizeof(S)};
  return (round_up(ceil_div(vocab, kLine) + 2, 4) - 2) * kLine;
}

// Layout of the scratch: of a chunk, the gradient of the logits in T, the float logits and the
// losses. If T is float, logits become their gradient in place. Kernels on a GPU have a layout of
// their own (ops/head_loss.cu), for which there are bytes of rows without gaps.
template <typename T>
struct Scratch {
  View<T, 2> dlogits;     // (rows, V and a gap)
  View<float, 2> logits;  // (rows, V and a gap)
  View<float, 1> nats;    // (rows)
  int64_t bytes = 0;

  enum class Gradient { kNo, kYes };
  Scratch(std::byte* memory, Backend backend, int64_t rows, int64_t vocab, Gradient gradient) {
    const bool has_gradient = gradient == Gradient::kYes, gaps = backend == Backend::kCpu;
    if (has_gradient) take(memory, dlogits, {rows, gaps ? row_stride<T>(vocab) : vocab});
    if (!has_gradient || !std::is_same_v<T, float>) {
      take(memory, logits, {rows, gaps ? row_stride<float>(vocab) : vocab});
    }
    take(memory, nats, {rows});
  }

 private:
  template <typename S, int Rank>
  void take(std::byte* memory, View<S, Rank>& view, const std::array<int64_t, Rank>& shape) {
    std::copy(shape.begin(), shape.end(), view.dim);
    view.data = reinterpret_cast<S*>(memory + bytes);
    bytes += round_up(int64_t(view.bytes()), 64);
  }
};

float largest_of(const float* z, int64_t n) {
  f32x16 top[4];
  for (f32x16& t : top) t = broadcast(-INFINITY);
  int64_t v = 0;
  for (; v + 4 * kVector <= n; v += 4 * kVector) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const f32x16 x = load(z + v + k * kVector);
      top[k] = select(top[k] < x, x, top[k]);
    }
  }
  float largest = -INFINITY;
  for (const f32x16& t : top) largest = std::max(largest, horizontal_max(t));
  for (; v < n; ++v) largest = std::max(largest, z[v]);
  return largest;
}

// The row after one, which comes from beyond the caches.
template <typename T>
struct NextRow {
  const float* logits;
  const T* gradient;  // null: none, or in the place of the logits

  // Asks for the logits [v, v + count), and for the lines that their gradient is written to.
  void ask(int64_t v, int64_t count) const {
    for (int64_t i = 0; i < count; i += kVector) __builtin_prefetch(logits + v + i, 0, 2);
    if (gradient == nullptr) return;
    constexpr int64_t kLine = 64 / int64_t{sizeof(T)};
    for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(gradient + v + i, 1, 2);
  }
};

// z[v] <- 2^((z[v] - top) scale); returns the sum, in an order that depends on n only.
template <typename T>
float exponentials(float* z, int64_t n, float top, float scale, const NextRow<T>& next) {
  f32x16 sum[4] = {};
  int64_t v = 0;
  for (; v + 4 * kVector <= n; v += 4 * kVector) {
    next.ask(v, 4 * kVector);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const f32x16 e = exp2_fast((load(z + v + k * kVector) - top) * scale);
      store(z + v + k * kVector, e);
      sum[k] += e;
    }
  }
  float total = horizontal_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; v < n; ++v) {
    z[v] = exp2_fast((z[v] - top) * scale);
    total += z[v];
  }
  return total;
}

// d[v] = e[v] * factor.
template <typename T>
void scaled(T* d, const float* e, int64_t n, float factor) {
  int64_t v = 0;
  for (; v + kVector <= n; v += kVector) store(d + v, load(e + v) * factor);
  for (; v < n; ++v) d[v] = T(e[v] * factor);
}

// Returns the loss of one row; its logits become exponentials, whose sum goes to `sum`.
template <typename T>
float row_loss(float* z, int64_t vocab, int32_t target, float gain, const NextRow<T>& next,
               float& sum) {
  const float top = largest_of(z, vocab), hit = (z[target] - top) * gain;
  sum = exponentials(z, vocab, top, gain * kLog2E, next);
  return std::log(sum) - hit;
}

// True if the target's logit is the largest of the row, and the first of equal ones.
bool most_likely(const float* z, int64_t vocab, int32_t target) {
  const float top = largest_of(z, vocab);
  return z[target] == top && std::find(z, z + target, top) == z + target;
}

void add_losses(View<double, 1> loss_sum, View<float, 1> nats, View<const float, 1> chunk,
                int64_t begin) {
  for (int64_t i = 0; i < chunk.dim[0]; ++i) {
    loss_sum[0] += double(chunk[i]);
    if (!nats.empty()) nats[begin + i] = chunk[i];
  }
}

// logits = x weight^T
template <typename T>
void compute_logits(Exec on, View<float, 2> logits, View<const T, 2> x,
                    const WeightMatrix<T>& weight) {
  const int32_t offsets[2] = {0, static_cast<int32_t>(x.dim[0])};
  multiply_segments<T, float>(on, {.c = logits.data,
                                   .start = nullptr,
                                   .c_stride = logits.dim[1],
                                   .a = x.data,
                                   .a_stride = x.dim[1],
                                   .row = nullptr,
                                   .b = weight.packed.data,
                                   .b_bytes = 0,
                                   .cols = weight.plain.dim[0],
                                   .k = weight.plain.dim[1],
                                   .segments = {offsets, 1},
                                   .scale = {}});
}

// The rows of dx from `begin` on, = dlogits weight, and their part of dweight, dlogits^T x.
template <typename T>
void multiply_gradient(Exec on, const HeadLoss<T>& a, int64_t begin, View<const T, 2> dlogits) {
  const int64_t vocab = a.weight.plain.dim[0], width = a.weight.plain.dim[1];
  const int32_t offsets[2] = {0, static_cast<int32_t>(dlogits.dim[0])};
  multiply_segments<T, T>(on,
                          {.c = a.dx.row(begin),
                           .start = nullptr,
                           .c_stride = width,
                           .a = dlogits.data,
                           .a_stride = dlogits.dim[1],
                           .row = nullptr,
                           .b = a.weight.packed.data + weight_pack_dgrad_offset<T>(vocab, width),
                           .b_bytes = 0,
                           .cols = width,
                           .k = vocab,
                           .segments = {offsets, 1},
                           .scale = {}});
  accumulate_segments<T>(on, {.c = a.dweight.data,
                              .sum = begin == 0 ? a.sum : GradientSum::kAdd,
                              .a = dlogits.data,
                              .a_stride = dlogits.dim[1],
                              .b = a.x.row(begin),
                              .row = nullptr,
                              .rows = vocab,
                              .cols = width,
                              .segments = {offsets, 1},
                              .scale = {}});
}

// Computes the losses of the rows from `begin` on, and dlogits, the gradient of their logits.
template <typename T>
void logits_gradient(Exec on, const HeadLoss<T>& a, const Scratch<T>& scratch, int64_t begin,
                     View<T, 2> dlogits) {
  constexpr bool kInPlace = std::is_same_v<T, float>;
  const int64_t rows = dlogits.dim[0], vocab = a.weight.plain.dim[0];
  View<float, 2> logits;
  if constexpr (kInPlace) {
    logits = dlogits;
  } else {
    logits = scratch.logits.rows(0, rows);
  }
  compute_logits(on, logits, a.x.rows(begin, rows), a.weight);
  parallel_ranges(on, rows, kRowsPerPiece, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int32_t target = a.target[begin + i];
      const int64_t after = std::min(i + 1, rows - 1);
      float* z = logits.row(i);
      T* dz = dlogits.row(i);
      if (!is_counted(target, a.mask_id)) {
        scratch.nats[i] = 0;
        std::fill(dz, dz + vocab, T(0.0f));
        continue;
      }
      float sum;
      scratch.nats[i] = row_loss<T>(
          z, vocab, target, a.logit_gain,
          {.logits = logits.row(after), .gradient = kInPlace ? nullptr : dlogits.row(after)}, sum);
      const float scale = a.grad_scale[0] * a.logit_gain;
      const float hit = z[target];  // scaled() may replace it
      scaled(dz, z, vocab, scale / sum);
      dz[target] = T(scale * (hit / sum - 1.0f));
    }
  });
  add_losses(a.loss_sum, a.nats, scratch.nats.rows(0, rows), begin);
}

template <typename T>
void check(Exec on, const char* op, View<const T, 2> x, const WeightMatrix<T>& weight,
           View<const int32_t, 1> target, int32_t mask_id, View<float, 1> nats) {
  CHECK(x.dim[0] == target.dim[0] && x.dim[1] == weight.plain.dim[1] &&
            (nats.empty() || nats.dim[0] == x.dim[0]),
        "%s: %s", op,
        shapes("x", x, "weight", weight.plain, "target", target, "nats", nats).c_str());
  check_packed(on, op, weight);
  if (on.gpu) return;  // targets are on the device
  for (int64_t i = 0; i < target.dim[0]; ++i) {
    CHECK(!is_counted(target[i], mask_id) || target[i] < weight.plain.dim[0],
          "%s: target[%ld] = %d, vocabulary %ld", op, long(i), int(target[i]),
          long(weight.plain.dim[0]));
  }
}

// What a call needs at least.
template <typename T>
int64_t least_scratch_bytes(Backend backend, int64_t tokens, int64_t vocab,
                            typename Scratch<T>::Gradient gradient) {
  const int64_t rows = head_loss_chunk_rows(tokens);
  return Scratch<T>(nullptr, backend, rows, vocab, gradient).bytes;
}

// That, or on a GPU what its chunks take where that is more.
template <typename T>
int64_t scratch_bytes(Backend backend, int64_t tokens, int64_t vocab,
                      typename Scratch<T>::Gradient gradient) {
  const int64_t least = least_scratch_bytes<T>(backend, tokens, vocab, gradient);
  if (backend == Backend::kCpu) return least;
  return std::max(least, gpu::head_loss_chunk_bytes(tokens, vocab, sizeof(T)));
}

Backend backend_of(Exec on) {
  return on.gpu ? Backend::kGpu : Backend::kCpu;
}

}  // namespace

int64_t head_loss_chunk_rows(int64_t tokens) {
  return std::min(tokens, kChunkRows);
}

template <typename T>
int64_t head_loss_scratch_bytes(Backend backend, int64_t tokens, int64_t vocab) {
  return scratch_bytes<T>(backend, tokens, vocab, Scratch<T>::Gradient::kYes);
}

template <typename T>
int64_t head_loss_eval_scratch_bytes(Backend backend, int64_t tokens, int64_t vocab) {
  return scratch_bytes<T>(backend, tokens, vocab, Scratch<T>::Gradient::kNo);
}

int64_t counted_targets(View<const int32_t, 1> target, int32_t mask_id) {
  return std::count_if(target.data, target.data + target.dim[0],
                       [&](int32_t t) { return is_counted(t, mask_id); });
}

template <typename T>
void head_loss(Exec on, const HeadLoss<T>& a) {
  const ProfileScope timed(on, "head_loss", head_loss_cost(a));
  check(on, "head_loss", a.x, a.weight, a.target, a.mask_id, a.nats);
  const int64_t tokens = a.x.dim[0], vocab = a.weight.plain.dim[0];
  CHECK(a.dx.size() == a.x.size() && a.dweight.dim[0] == vocab && a.dweight.dim[1] == a.x.dim[1] &&
            a.grad_scale.dim[0] == 1,
        "head_loss: %s",
        shapes("dx", a.dx, "dweight", a.dweight, "x", a.x, "weight", a.weight.plain, "grad_scale",
               a.grad_scale)
            .c_str());
  const int64_t least =
      least_scratch_bytes<T>(backend_of(on), tokens, vocab, Scratch<T>::Gradient::kYes);
  CHECK(a.scratch.size() >= least && a.logit_gain > 0,
        "head_loss: scratch of %ld bytes, %ld needed; logit_gain %g", long(a.scratch.size()),
        long(least), double(a.logit_gain));
  if (tokens == 0 && a.sum == GradientSum::kStore) zero(on, a.dweight);
  if (on.gpu) return gpu::head_loss(on, a);
  const int64_t chunk_rows = head_loss_chunk_rows(tokens);
  const Scratch<T> scratch(a.scratch.data, Backend::kCpu, chunk_rows, vocab,
                           Scratch<T>::Gradient::kYes);
  for (int64_t chunk = 0; chunk < tokens; chunk += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, tokens - chunk);
    const View<T, 2> dlogits = scratch.dlogits.rows(0, rows);
    logits_gradient(on, a, scratch, chunk, dlogits);
    multiply_gradient<T>(on, a, chunk, dlogits);
  }
}

template <typename T>
void head_loss_eval(Exec on, const HeadLossEval<T>& a) {
  const ProfileScope timed(on, "head_loss_eval", head_loss_eval_cost(a));
  check(on, "head_loss_eval", a.x, a.weight, a.target, a.mask_id, a.nats);
  const int64_t tokens = a.x.dim[0], vocab = a.weight.plain.dim[0];
  const int64_t least =
      least_scratch_bytes<T>(backend_of(on), tokens, vocab, Scratch<T>::Gradient::kNo);
  CHECK(a.scratch.size() >= least && a.logit_gain > 0,
        "head_loss_eval: scratch of %ld bytes, %ld needed; logit_gain %g", long(a.scratch.size()),
        long(least), double(a.logit_gain));
  CHECK(a.most_likely.empty() || a.most_likely.dim[0] == tokens,
        "head_loss_eval: most_likely (%ld) of %ld rows", long(a.most_likely.dim[0]), long(tokens));
  if (on.gpu) return gpu::head_loss_eval(on, a);
  const int64_t chunk_rows = head_loss_chunk_rows(tokens);
  const Scratch<T> scratch(a.scratch.data, Backend::kCpu, chunk_rows, vocab,
                           Scratch<T>::Gradient::kNo);
  for (int64_t begin = 0; begin < tokens; begin += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, tokens - begin);
    const View<float, 2> logits = scratch.logits.rows(0, rows);
    compute_logits(on, logits, a.x.rows(begin, rows), a.weight);
    parallel_ranges(on, rows, kRowsPerPiece, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int32_t target = a.target[begin + i];
        const bool counted = is_counted(target, a.mask_id);
        if (!a.most_likely.empty()) {
          a.most_likely[begin + i] = counted && most_likely(logits.row(i), vocab, target);
        }
        scratch.nats[i] = 0;
        if (!counted) continue;
        const float* const after = logits.row(std::min(i + 1, rows - 1));
        float sum;
        scratch.nats[i] = row_loss<T>(logits.row(i), vocab, target, a.logit_gain,
                                      {.logits = after, .gradient = nullptr}, sum);
      }
    });
    add_losses(a.loss_sum, a.nats, scratch.nats.rows(0, rows), begin);
  }
}

template int64_t head_loss_scratch_bytes<float>(Backend, int64_t, int64_t);
template int64_t head_loss_scratch_bytes<bf16>(Backend, int64_t, int64_t);
template int64_t head_loss_eval_scratch_bytes<float>(Backend, int64_t, int64_t);
template int64_t head_loss_eval_scratch_bytes<bf16>(Backend, int64_t, int64_t);
template void head_loss<float>(Exec, const HeadLoss<float>&);
template void head_loss<bf16>(Exec, const HeadLoss<bf16>&);
template void head_loss_eval<float>(Exec, const HeadLossEval<float>&);
template void head_loss_eval<bf16>(Exec, const HeadLossEval<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(head_loss, HeadLoss<float>)
ASSAY_GPU_ABSENT(head_loss, HeadLoss<bf16>)
ASSAY_GPU_ABSENT(head_loss_eval, HeadLossEval<float>)
ASSAY_GPU_ABSENT(head_loss_eval, HeadLossEval<bf16>)
int64_t head_loss_chunk_bytes(int64_t tokens, int64_t vocab, int64_t element_bytes) {
  return head_chunk_bytes(std::min(tokens, kHeadChunkRows), vocab, element_bytes) + 64;
}
}  // namespace gpu

}  // namespace assay
