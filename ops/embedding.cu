#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/embedding.h"
#include "ops/gpu/elements.h"
#include "ops/gpu/sort.h"

namespace assay::gpu {

namespace {

constexpr int kRowsPerBlock = 8;
constexpr int kBatch = 4;  // loads in flight per lane
constexpr int kRun = 64;   // sorted tokens per partial sum; fixes the order of the sum
constexpr int kWarpsPerBlock = 4;

// Each warp owns a row of y. Bound by memory: 2 C sizeof(T) bytes per token; rows of repeated
// tokens come from L2.
template <typename T, int N>
__global__ __launch_bounds__(kRowsPerBlock* kWarp) void embedding_forward_kernel(
    const __grid_constant__ EmbeddingForward<T> a) {
  const int64_t i = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.y;
  if (i >= a.y.dim[0]) return;
  const int64_t width = a.y.dim[1];
  const T* weight = a.weight.row(a.token[i]);
  T* y = a.y.row(i);
  for (int64_t c = int64_t{threadIdx.x} * N; c < width; c += kBatch * kWarp * N) {
    float x[kBatch][N] = {};
    for (int k = 0; k < kBatch; ++k) {
      const int64_t column = c + k * kWarp * N;
      if (column < width) load_floats(x[k], weight + column);
    }
    for (int k = 0; k < kBatch; ++k) {
      const int64_t column = c + k * kWarp * N;
      for (int e = 0; e < N; ++e) x[k][e] *= a.gain;
      if (column < width) store_floats(y + column, x[k]);
    }
  }
}

// Backward. The tokens are sorted with their positions, and the sorted list is cut into runs of 64.
// A token's segment is inside one run or continues into the next ones. `partial` has two rows per
// run: row 0 is the sum of the segment that enters the run (including one that spans it), row 1 the
// sum of the segment that leaves it.
template <typename T>
struct Segments {
  View<float, 2> dweight;           // acc (V, C)
  View<float, 3> partial;           // tmp (runs, 2, C)
  View<const T, 2> dy;              // in  (N, C)
  View<const int32_t, 1> token;     // in  (N)   sorted
  View<const int32_t, 1> position;  // in  (N)
  float gain;
};

template <int N>
GPU_DEVICE void add_scaled(float* to, const float (&sum)[N], float gain) {
  float old[N];
  load_floats(old, to);
  for (int e = 0; e < N; ++e) old[e] += gain * sum[e];
  store_floats(to, old);
}

// Each warp owns a run and 32 N columns: it adds rows of dy in token order, and adds a segment that
// begins and ends in the run to dweight. Bound by memory: dy once (C sizeof(T) bytes per token,
// gathered by row), dweight read and written once per distinct token. A single repeated token is no
// slower: no warp has more than 64 rows.
template <typename T, int N>
__global__ __launch_bounds__(kWarpsPerBlock* kWarp) void embedding_runs_kernel(
    const __grid_constant__ Segments<T> a) {
  const int64_t run = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  const int64_t n = a.token.dim[0], begin = run * kRun;
  const int64_t column = (int64_t{blockIdx.y} * kWarp + threadIdx.x) * N;
  if (begin >= n || column >= a.dy.dim[1]) return;
  const int64_t end = begin + kRun < n ? begin + kRun : n;
  int32_t current = a.token[begin];
  bool entered = begin > 0 && a.token[begin - 1] == current;
  float sum[N] = {};
  for (int64_t i = begin; i < end; i += kBatch) {
    float x[kBatch][N] = {};
    int32_t token[kBatch];
    for (int k = 0; k < kBatch; ++k) {
      token[k] = i + k < end ? a.token[i + k] : -1;
      if (i + k < end) load_floats(x[k], a.dy.row(a.position[i + k]) + column);
    }
    for (int k = 0; k < kBatch && i + k < end; ++k) {
      if (token[k] != current) {
        if (entered) {
          store_floats(a.partial(run).row(0) + column, sum);
        } else {
          add_scaled(a.dweight.row(current) + column, sum, a.gain);
        }
        for (int e = 0; e < N; ++e) sum[e] = 0;
        current = token[k];
        entered = false;
      }
      for (int e = 0; e < N; ++e) sum[e] += x[k][e];
    }
  }
  const bool leaves = end < n && a.token[end] == current;
  if (entered || leaves) {
    store_floats(a.partial(run).row(entered ? 0 : 1) + column, sum);
  } else {
    add_scaled(a.dweight.row(current) + column, sum, a.gain);
  }
}

// Each warp owns the segment that begins in its run and leaves it, if any, and 32 N columns: it
// adds the partial sums in order and adds the total to dweight. At most two rows of floats per run
// of 64 tokens: a sixteenth of the bytes of the first kernel. If one token fills everything, this
// is one chain of loads, 8 in flight.
template <typename T, int N>
__global__ __launch_bounds__(kWarpsPerBlock* kWarp) void embedding_joins_kernel(
    const __grid_constant__ Segments<T> a) {
  constexpr int kAhead = 8;
  const int64_t run = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.y;
  const int64_t n = a.token.dim[0], begin = run * kRun, end = begin + kRun, runs = a.partial.dim[0];
  const int64_t column = (int64_t{blockIdx.y} * kWarp + threadIdx.x) * N;
  if (end >= n || column >= a.dy.dim[1]) return;
  const int32_t token = a.token[end - 1];
  const bool leaves = a.token[end] == token;
  const bool enters = a.token[begin] == token && begin > 0 && a.token[begin - 1] == token;
  if (!leaves || enters) return;
  float sum[N];
  load_floats(sum, a.partial(run).row(1) + column);
  for (int64_t next = run + 1; next < runs; next += kAhead) {
    float x[kAhead][N] = {};
    for (int k = 0; k < kAhead; ++k) {
      const bool more = next + k < runs && a.token[(next + k) * kRun] == token;
      if (more) load_floats(x[k], a.partial(next + k).row(0) + column);
    }
    for (int k = 0; k < kAhead; ++k) {
      for (int e = 0; e < N; ++e) sum[e] += x[k][e];
    }
    const int64_t last = next + kAhead - 1;
    if (last >= runs || a.token[last * kRun] != token) break;
  }
  add_scaled(a.dweight.row(token) + column, sum, a.gain);
}

template <typename T>
void launch_forward(Exec on, const EmbeddingForward<T>& a) {
  if (a.y.size() == 0) return;
  const int64_t width = a.y.dim[1];
  const bool vectors = in_vectors(a.y.data, width) && in_vectors(a.weight.data, width);
  const unsigned blocks = unsigned(ceil_div(a.y.dim[0], kRowsPerBlock));
  launch(on, {.name = "embedding_forward", .grid = {blocks}, .block = {kWarp, kRowsPerBlock}},
         vectors ? embedding_forward_kernel<T, kVector> : embedding_forward_kernel<T, 1>, a);
}

int64_t runs_of(int64_t tokens) {
  return ceil_div(tokens, kRun);
}

// Layout of the workspace; each part is aligned to 256 bytes.
struct Workspace {
  View<float, 3> partial;
  View<int32_t, 1> token, position;
  View<std::byte, 1> sort;
  int64_t bytes = 0;

  Workspace(std::byte* memory, int64_t tokens, int64_t width)
      : partial{nullptr, {runs_of(tokens), 2, width}},
        token{nullptr, {tokens}},
        position{nullptr, {tokens}},
        sort{nullptr, {sort_positions_scratch_bytes(tokens)}} {
    take(memory, partial);
    take(memory, token);
    take(memory, position);
    take(memory, sort);
  }

 private:
  template <typename V>
  void take(std::byte* memory, V& view) {
    view.data = reinterpret_cast<decltype(view.data)>(memory + bytes);
    bytes += round_up(int64_t(view.bytes()), 256);
  }
};

template <typename T>
void launch_backward(Exec on, const EmbeddingBackward<T>& a) {
  if (a.dy.size() == 0) return;
  const int64_t tokens = a.dy.dim[0], width = a.dy.dim[1];
  CHECK(on.workspace.size() >= embedding_backward_workspace_bytes(tokens, width),
        "embedding_backward: workspace has %ld bytes, needs %ld", long(on.workspace.size()),
        long(embedding_backward_workspace_bytes(tokens, width)));
  const Workspace w(on.workspace.data, tokens, width);
  sort_positions(on, {.key = w.token,
                      .position = w.position,
                      .scratch = w.sort,
                      .keys = a.token,
                      .limit = a.dweight.dim[0]});
  const Segments<T> segments{a.dweight, w.partial, a.dy, w.token, w.position, a.gain};
  const bool vectors = in_vectors(a.dy.data, width) && in_vectors(a.dweight.data, width) &&
                       in_vectors(w.partial.data, width);
  const auto grid = [&](int columns_a_lane) -> Extent {
    const int64_t columns = columns_a_lane * kWarp;
    return {unsigned(ceil_div(runs_of(tokens), kWarpsPerBlock)),
            unsigned(ceil_div(width, columns))};
  };
  launch(on,
         {.name = "embedding_runs",
          .grid = grid(vectors ? kVector : 1),
          .block = {kWarp, kWarpsPerBlock}},
         vectors ? embedding_runs_kernel<T, kVector> : embedding_runs_kernel<T, 1>, segments);
  launch(
      on,
      {.name = "embedding_joins", .grid = grid(vectors ? 4 : 1), .block = {kWarp, kWarpsPerBlock}},
      vectors ? embedding_joins_kernel<T, 4> : embedding_joins_kernel<T, 1>, segments);
}

}  // namespace

int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t width) {
  return Workspace(nullptr, tokens, width).bytes;
}

void embedding_forward(Exec on, const EmbeddingForward<float>& a) {
  launch_forward(on, a);
}
void embedding_forward(Exec on, const EmbeddingForward<bf16>& a) {
  launch_forward(on, a);
}
void embedding_backward(Exec on, const EmbeddingBackward<float>& a) {
  launch_backward(on, a);
}
void embedding_backward(Exec on, const EmbeddingBackward<bf16>& a) {
  launch_backward(on, a);
}

}  // namespace assay::gpu
