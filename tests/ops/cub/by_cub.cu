#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "tests/ops/cub/by_cub.h"

namespace assay::by_cub {

using namespace gpu;

namespace {

constexpr int kBlock = 256;

// The workspace of n keys; each part is aligned to 256 bytes.
struct Workspace {
  View<int32_t, 1> key, position, index;
  View<std::byte, 1> scratch;
  int64_t bytes = 0;

  Workspace(std::byte* memory, int64_t n)
      : key{nullptr, {n}},
        position{nullptr, {n}},
        index{nullptr, {n}},
        scratch{nullptr, {sort_pairs_scratch_bytes(n)}} {
    take(memory, key);
    take(memory, position);
    take(memory, index);
    take(memory, scratch);
  }

 private:
  template <typename V>
  void take(std::byte* memory, V& view) {
    view.data = reinterpret_cast<decltype(view.data)>(memory + bytes);
    bytes += round_up(int64_t(view.bytes()), 256);
  }
};
Workspace workspace_of(Exec on, int64_t n) {
  const Workspace w(on.workspace.data, n);
  CHECK(on.workspace.size() >= w.bytes, "by_cub: workspace has %ld bytes, needs %ld",
        long(on.workspace.size()), long(w.bytes));
  return w;
}

__global__ __launch_bounds__(kBlock) void index_kernel(View<int32_t, 1> index) {
  const int64_t i = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < index.dim[0]) index[i] = int32_t(i);
}

// A thread owns a slot: it writes its token, the slot's place in (N, K), and the offsets of the
// experts that begin there; the last thread also those of the experts after it.
struct Places {
  Dispatch to;
  View<const int32_t, 1> expert, position;  // in (N K)   sorted
};
__global__ __launch_bounds__(kBlock) void places_kernel(const __grid_constant__ Places a) {
  const int64_t slot = int64_t{blockIdx.x} * kBlock + threadIdx.x, n = a.expert.dim[0];
  if (slot >= n) return;
  const int32_t i = a.position[slot];
  a.to.token[slot] = int32_t(i / a.to.expert.dim[1]);
  a.to.slot[i] = int32_t(slot);
  const int64_t before = slot > 0 ? a.expert[slot - 1] : -1, experts = a.to.offsets.dim[0] - 1;
  for (int64_t e = before + 1; e <= a.expert[slot]; ++e) a.to.offsets[e] = int32_t(slot);
  if (slot + 1 < n) return;
  for (int64_t e = a.expert[slot] + 1; e <= experts; ++e) a.to.offsets[e] = int32_t(n);
}

Launch blocks_for(const char* name, int64_t n) {
  return {.name = name, .grid = {unsigned(ceil_div(n, kBlock))}, .block = {kBlock}};
}

}  // namespace

int64_t workspace_bytes(int64_t n) {
  return Workspace(nullptr, n).bytes;
}

void dispatch(Exec on, const Dispatch& a) {
  const int64_t n = a.expert.size();
  const Workspace w = workspace_of(on, n);
  launch(on, blocks_for("by_cub_index", n), index_kernel, w.index);
  sort_pairs(on, {.key = w.key,
                  .value = w.position,
                  .scratch = w.scratch,
                  .keys = {a.expert.data, {n}},
                  .values = w.index,
                  .limit = a.offsets.dim[0] - 1});
  launch(on, blocks_for("by_cub_places", n), places_kernel, Places{a, w.key, w.position});
}

void sort_positions(Exec on, const SortPositions& a) {
  const Workspace w = workspace_of(on, a.keys.dim[0]);
  launch(on, blocks_for("by_cub_index", a.keys.dim[0]), index_kernel, w.index);
  sort_pairs(on, {.key = a.key,
                  .value = a.position,
                  .scratch = w.scratch,
                  .keys = a.keys,
                  .values = w.index,
                  .limit = a.limit});
}

}  // namespace assay::by_cub
