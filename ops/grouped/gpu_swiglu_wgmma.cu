// The experts' products with SwiGLU or its gradient, by wgmma.
#include "base/math.h"
#include "ops/grouped/gpu_launch.h"
#include "ops/grouped/gpu_tensor.h"

namespace assay::gpu {

namespace {

// Bounds at 65536 tokens, width 768, 7 of 256 experts, ffn 384: forward 541 GF / 1.5 GB, 685 us by
// the tensor cores at 790 TFLOP/s; dgrad 271 GF / 2.3 GB, 527 us by memory at 4.3 TB/s, of which
// gate_up and its gradient are 60%.
template <GroupedRows Rows, int N>
void launch_swiglu_forward(Exec on, const GroupedSwigluForward<bf16>& a, const GroupedParts& work) {
  const int64_t assignments = a.h.dim[0], in = a.x.dim[1], experts = a.weight.plain.dim[0];
  launch_tiles<GroupedTile<GroupedKind::kForward, Rows, N, GroupedEnd::kSwiglu>>(
      on, "grouped_swiglu_forward",
      {.a = rows_map("x", a.x.data, a.x.dim[0], in, kGroupedTileM),
       .b = weight_map(a.weight.plain, N / 2),
       .c = a.gate_up.data,
       .h = a.h.data,
       .x = a.x.data,
       .row = a.row.data,
       .work = work,
       .n = int(a.h.dim[1]),
       .k = int(in),
       .scale = a.scale,
       .amax = a.amax.data},
      grouped_parts_limit(assignments, experts, kGroupedTileM));
}

template <GroupedRows Rows>
void launch_swiglu_forward(Exec on, const GroupedSwigluForward<bf16>& a, const GroupedParts& work) {
  // 128 columns of h per tile, or 64 if that computes less past the edge.
  if (ceil_div(a.h.dim[1], 64) % 2 == 0) return launch_swiglu_forward<Rows, 256>(on, a, work);
  launch_swiglu_forward<Rows, 128>(on, a, work);
}

template <int N>
void launch_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<bf16>& a, const GroupedParts& work) {
  const auto& w = a.weight.plain;
  const int64_t assignments = a.dy.dim[0], out = w.dim[1], ffn = w.dim[2];
  launch_tiles<
      GroupedTile<GroupedKind::kDgrad, GroupedRows::kInOrder, N, GroupedEnd::kSwigluGradient>>(
      on, "grouped_swiglu_dgrad",
      {.a = rows_map("dy", a.dy.data, assignments, out, kGroupedTileM),
       .b = weight_map(w, kGroupedSlab),
       .c = a.dgate_up.data,
       .gate_up = a.gate_up.data,
       .work = work,
       .n = int(ffn),
       .k = int(out),
       .scale = a.scale,
       .amax = a.amax.data},
      grouped_parts_limit(assignments, w.dim[0], kGroupedTileM));
}

}  // namespace

void grouped_swiglu_forward_wgmma(Exec on, const GroupedSwigluForward<bf16>& a) {
  const auto& w = a.weight.plain;
  const GroupedParts work = grouped_parts(on, "grouped_swiglu_forward", a.h.dim[0], w.dim[0]);
  cut_rows(on, work, a.offsets, a.h.dim[0], kGroupedTileM);
  if (a.row.empty()) return launch_swiglu_forward<GroupedRows::kInOrder>(on, a, work);
  launch_swiglu_forward<GroupedRows::kGathered>(on, a, work);
}

void grouped_swiglu_dgrad_wgmma(Exec on, const GroupedSwigluDgrad<bf16>& a) {
  const auto& w = a.weight.plain;
  const int64_t assignments = a.dy.dim[0], ffn = w.dim[2];
  const GroupedParts work = grouped_parts(on, "grouped_swiglu_dgrad", assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  // Tiles of 256 columns leave no registers for the prefetched gate_up.
  if (round_up(ffn, 192) <= round_up(ffn, 128)) {
    return launch_swiglu_dgrad<192>(on, a, work);
  }
  launch_swiglu_dgrad<128>(on, a, work);
}

}  // namespace assay::gpu
