// The matrix products go through ops/linear. Between them, one kernel turns a chunk of logits,
// rounded to T, into losses and, in place, into the gradient of the logits. Evaluation keeps its
// logits in float: it needs no gradient, and its losses are compared between backends.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/gpu/head_loss_chunk.h"
#include "ops/head_loss.h"
#include "ops/linear.h"

namespace assay::gpu {

namespace {

constexpr int kMostThreads = 512;
constexpr int kSumThreads = 1024;
constexpr int kAhead = 4;                 // loads in flight per thread
constexpr int64_t kFixedBytes = 3 << 10;  // shared memory that is not a row's
constexpr int64_t kRowsAtOnce = 128;      // chunks are multiples of it, which suits the products

template <typename T>
struct LogitRows {
  View<T, 2> logits;                // acc (rows, V)   replaced by their gradient, if it is computed
  View<float, 1> nats;              // out (rows)
  View<const int32_t, 1> target;    // in  (rows)
  View<const float, 1> grad_scale;  // in  (1)   with the gradient
  int32_t mask_id;
  float gain;
  View<uint8_t, 1> most_likely = {};  // out (rows)   only without the gradient
};

// Each block owns a row; each thread owns every blockDim.x-th 16 bytes of it, in both passes: the
// sum of exponentials, as the row arrives, and the gradient. kHeld: the first pass keeps the row in
// shared memory, so that it is read and written once (2 V sizeof(T) bytes, the bound; at V = 50304
// in bf16 two blocks share an SM of 227 KB, one computes while the other loads). Rows that do not
// fit are read twice, mostly from L2. The two exponentials per element take 60% of the memory time.
template <typename T, int N, int kHeld, int kGradient>
__global__ __launch_bounds__(kMostThreads,
                             2) void logit_rows_kernel(const __grid_constant__ LogitRows<T> a) {
  GPU_DYNAMIC_SHARED(T, held);
  GPU_SHARED(float, scratch, [kWarp]);
  const int64_t vocab = a.logits.dim[1];
  T* const row = a.logits.row(blockIdx.x);
  const T* const again = kHeld ? held : row;
  const int first = int(threadIdx.x) * N, stride = int(blockDim.x) * N;
  const int32_t target = a.target[blockIdx.x];

  // Target that is not counted: loss 0, gradient 0.
  if (target < 0 || target == a.mask_id) {
    if constexpr (kGradient) {
      const Vec<T, N> zero = {};
      for (int64_t v = first; v < vocab; v += stride) store_vec<N>(row + v, zero);
    }
    if (threadIdx.x == 0) {
      a.nats[blockIdx.x] = 0;
      if (!a.most_likely.empty()) a.most_likely[blockIdx.x] = 0;
    }
    return;
  }
  // Read before the first barrier, and so before any gradient is written.
  const float at_target = float(row[target]);

  // Online softmax: each thread's sum is relative to its own largest logit so far.
  const float exponent = a.gain * kLog2E;
  float top = -FLT_MAX, sum = 0;
  const auto take = [&](const Vec<T, N>& part, int64_t v) {
    if constexpr (kHeld) store_vec<N>(held + v, part);
    float z[N], largest = float(part[0]);
    for (int e = 0; e < N; ++e) {
      z[e] = float(part[e]);
      largest = Max{}(largest, z[e]);
    }
    if (largest > top) {
      sum *= exp2_approx((top - largest) * exponent);
      top = largest;
    }
    for (int e = 0; e < N; ++e) sum += exp2_approx((z[e] - top) * exponent);
  };
  int64_t next = first;
  for (; next + (kAhead - 1) * stride < vocab; next += kAhead * stride) {
    Vec<T, N> part[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) part[i] = load_vec<N>(row + next + i * stride);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) take(part[i], next + i * stride);
  }
  for (; next < vocab; next += stride) take(load_vec<N>(row + next), next);

  // Reduction and loss.
  const float own_top = top;
  top = block_reduce(top, Max{}, -FLT_MAX, scratch);
  sum = block_sum(sum * exp2_approx((own_top - top) * exponent), scratch);
  const float hit = (at_target - top) * a.gain;
  if (threadIdx.x == 0) a.nats[blockIdx.x] = logf(sum) - hit;

  // Is the target the most likely token?
  if constexpr (!kGradient) {
    if (!a.most_likely.empty()) {
      float before = 0;  // 1: a smaller id also has the largest logit
      for (int64_t v = first; v < target; v += stride) {
        float z[N];
        load_floats(z, again + v);
        for (int e = 0; e < N; ++e) {
          if (z[e] == top && v + e < target) before = 1;
        }
      }
      before = block_reduce(before, Max{}, 0.0f, scratch);
      if (threadIdx.x == 0) a.most_likely[blockIdx.x] = at_target == top && before == 0;
    }
  }

  // Gradient.
  if constexpr (kGradient) {
    const float scale = a.grad_scale[0] * a.gain, factor = scale / sum;
#pragma unroll 2
    for (int64_t v = first; v < vocab; v += stride) {
      float z[N];
      load_floats(z, again + v);
      for (int e = 0; e < N; ++e) z[e] = exp2_approx((z[e] - top) * exponent) * factor;
      store_floats(row + v, z);
    }
    // Written by the thread that has just written this element.
    if (target / N % int(blockDim.x) == int(threadIdx.x)) {
      const float probability = exp2_approx(hit * kLog2E) / sum;
      round_to(row[target], scale * (probability - 1.0f));
    }
  }
}

struct LossSum {
  View<double, 1> loss_sum;   // acc (1)
  View<const float, 1> nats;  // in  (rows)
};

// One block: each thread adds every 1024th row in double, then the block reduces, always in the
// same order.
__global__ __launch_bounds__(kSumThreads) void loss_sum_kernel(const __grid_constant__ LossSum a) {
  GPU_SHARED(double, scratch, [kWarp]);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < a.nats.dim[0]; i += kSumThreads) sum += double(a.nats[i]);
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) a.loss_sum[0] += sum;
}

template <typename T, int kGradient>
void launch_rows(Exec on, const LogitRows<T>& a) {
  constexpr int kWide = 16 / int(sizeof(T));
  const int64_t vocab = a.logits.dim[1], bytes = vocab * int64_t(sizeof(T));
  const bool vectors = reinterpret_cast<uintptr_t>(a.logits.data) % 16 == 0 && vocab % kWide == 0;
  const bool held = bytes <= on.gpu->kind.shared_bytes - kFixedBytes;
  const int64_t pieces = vectors ? vocab / kWide : vocab;
  const unsigned threads = unsigned(std::min<int64_t>(round_up(pieces, kWarp), kMostThreads));
  constexpr int kG = kGradient;
  const auto kernel =
      vectors ? (held ? logit_rows_kernel<T, kWide, 1, kG> : logit_rows_kernel<T, kWide, 0, kG>)
              : (held ? logit_rows_kernel<T, 1, 1, kG> : logit_rows_kernel<T, 1, 0, kG>);
  launch(on,
         {.name = kGradient ? "head_loss_rows" : "head_loss_eval_rows",
          .grid = {unsigned(a.logits.dim[0])},
          .block = {threads},
          .shared_bytes = int(held ? bytes : 0)},
         kernel, a);
}

// The scratch of a chunk: losses, then logits. Holds as many rows as fit.
template <typename T>
struct Chunk {
  View<float, 1> nats;
  View<T, 2> logits;

  Chunk(View<std::byte, 1> scratch, int64_t tokens, int64_t vocab) {
    int64_t rows = (scratch.size() - 64) / (vocab * int64_t(sizeof(T)) + 4);
    if (rows > kRowsAtOnce) rows = rows / kRowsAtOnce * kRowsAtOnce;
    rows = std::min({rows, tokens, kHeadChunkRows});
    CHECK(rows > 0, "head_loss: scratch of %ld bytes is too small for a row of %ld logits",
          long(scratch.size()), long(vocab));
    nats = {reinterpret_cast<float*>(scratch.data), {rows}};
    logits = {reinterpret_cast<T*>(scratch.data + head_chunk_bytes(rows, 0, 0)), {rows, vocab}};
  }
};

template <typename T>
void launch_loss(Exec on, const HeadLoss<T>& a) {
  const int64_t tokens = a.x.dim[0], vocab = a.dweight.dim[0];
  if (tokens == 0) return;
  const Chunk<T> chunk(a.scratch, tokens, vocab);
  for (int64_t begin = 0; begin < tokens; begin += chunk.nats.dim[0]) {
    const int64_t rows = std::min(chunk.nats.dim[0], tokens - begin);
    const View<T, 2> logits = chunk.logits.rows(0, rows);
    const View<const T, 2> x = a.x.rows(begin, rows);
    const View<float, 1> nats =
        a.nats.empty() ? chunk.nats.rows(0, rows) : a.nats.rows(begin, rows);
    linear_forward<T>(on, {.y = logits, .x = x, .weight = a.weight});
    launch_rows<T, 1>(on, {.logits = logits,
                           .nats = nats,
                           .target = a.target.rows(begin, rows),
                           .grad_scale = a.grad_scale,
                           .mask_id = a.mask_id,
                           .gain = a.logit_gain});
    launch(on, {.name = "head_loss_sum", .grid = {1}, .block = {kSumThreads}}, loss_sum_kernel,
           LossSum{a.loss_sum, nats});
    linear_dgrad<T>(on, {.dx = a.dx.rows(begin, rows), .dy = logits, .weight = a.weight});
    linear_wgrad<T>(on, {.dweight = a.dweight,
                         .dy = logits,
                         .x = x,
                         .sum = begin == 0 ? a.sum : GradientSum::kAdd});
  }
}

template <typename T>
void launch_eval(Exec on, const HeadLossEval<T>& a) {
  const int64_t tokens = a.x.dim[0];
  if (tokens == 0) return;
  const Chunk<float> chunk(a.scratch, tokens, a.weight.plain.dim[0]);
  for (int64_t begin = 0; begin < tokens; begin += chunk.nats.dim[0]) {
    const int64_t rows = std::min(chunk.nats.dim[0], tokens - begin);
    const View<float, 2> logits = chunk.logits.rows(0, rows);
    const View<float, 1> nats =
        a.nats.empty() ? chunk.nats.rows(0, rows) : a.nats.rows(begin, rows);
    linear_forward<T, float>(on, {.y = logits, .x = a.x.rows(begin, rows), .weight = a.weight});
    launch_rows<float, 0>(
        on,
        {.logits = logits,
         .nats = nats,
         .target = a.target.rows(begin, rows),
         .grad_scale = {},
         .mask_id = a.mask_id,
         .gain = a.logit_gain,
         .most_likely = a.most_likely.empty() ? a.most_likely : a.most_likely.rows(begin, rows)});
    launch(on, {.name = "head_loss_eval_sum", .grid = {1}, .block = {kSumThreads}}, loss_sum_kernel,
           LossSum{a.loss_sum, nats});
  }
}

}  // namespace

void head_loss(Exec on, const HeadLoss<float>& a) {
  launch_loss(on, a);
}
void head_loss(Exec on, const HeadLoss<bf16>& a) {
  launch_loss(on, a);
}
void head_loss_eval(Exec on, const HeadLossEval<float>& a) {
  launch_eval(on, a);
}
void head_loss_eval(Exec on, const HeadLossEval<bf16>& a) {
  launch_eval(on, a);
}

}  // namespace assay::gpu
