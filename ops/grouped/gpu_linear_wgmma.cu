// The experts' linear layers by wgmma.
#include <algorithm>

#include "ops/grouped/gpu_launch.h"
#include "ops/grouped/gpu_tensor.h"

namespace assay::gpu {

void grouped_forward_wgmma(Exec on, const GroupedForward<bf16>& a) {
  constexpr const char* kName = "grouped_linear_forward";
  const int64_t assignments = a.y.dim[0], out = a.y.dim[1], in = a.x.dim[1];
  const auto& w = a.weight.plain;
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  const int64_t parts = grouped_parts_limit(assignments, w.dim[0], kGroupedTileM);
  with_tile_width(out, [&]<int N>() {
    const GroupedTileArgs g = {.a = rows_map("x", a.x.data, a.x.dim[0], in, kGroupedTileM),
                               .b = weight_map(w, N / 2),
                               .c = a.y.data,
                               .x = a.x.data,
                               .row = a.row.data,
                               .work = work,
                               .n = int(out),
                               .k = int(in),
                               .scale = a.scale};
    if (a.row.empty()) {
      launch_tiles<GroupedTile<GroupedKind::kForward, GroupedRows::kInOrder, N>>(
          on, kName, g, parts, assignments);
    } else {
      launch_tiles<GroupedTile<GroupedKind::kForward, GroupedRows::kGathered, N>>(
          on, kName, g, parts, assignments);
    }
  });
}

void grouped_dgrad_wgmma(Exec on, const GroupedDgrad<bf16>& a) {
  constexpr const char* kName = "grouped_linear_dgrad";
  const int64_t assignments = a.dy.dim[0], out = a.dy.dim[1], in = a.dx.dim[1];
  const auto& w = a.weight.plain;
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  cut_rows(on, work, a.offsets, assignments, kGroupedTileM);
  const int64_t parts = grouped_parts_limit(assignments, w.dim[0], kGroupedTileM);
  with_tile_width(in, [&]<int N>() {
    launch_tiles<GroupedTile<GroupedKind::kDgrad, GroupedRows::kInOrder, N>>(
        on, kName,
        {.a = rows_map("dy", a.dy.data, assignments, out, kGroupedTileM),
         .b = weight_map(w, kGroupedSlab),
         .c = a.dx.data,
         .work = work,
         .n = int(in),
         .k = int(out),
         .scale = a.scale},
        parts, assignments);
  });
}

void grouped_wgrad_wgmma(Exec on, const GroupedWgrad<bf16>& a) {
  constexpr const char* kName = "grouped_linear_wgrad";
  const int64_t assignments = a.dy.dim[0], experts = a.dweight.dim[0];
  const int64_t out = a.dweight.dim[1], in = a.dweight.dim[2];
  const GroupedParts work = grouped_parts(on, kName, assignments, experts, out, in, a.most_rows);
  order_experts(on, work, a.offsets, GroupedCut::kPieces);
  const int64_t slots = grouped_slots(assignments, a.most_rows);
  const int64_t parts = std::min(experts, assignments) + slots;
  with_tile_width(in, [&]<int N>() {
    const GroupedTileArgs g = {
        .a = rows_map("dy", a.dy.data, assignments, out, kGroupedTileK),
        .b = rows_map("x", a.x.data, a.x.dim[0], in, kGroupedTileK),
        .c = a.dweight.data,
        .x = a.x.data,
        .row = a.row.data,
        .work = work,
        .m = int(out),
        .n = int(in),
        .sum = a.sum == GradientSum::kStore ? GroupedSum::kStore : GroupedSum::kAdd,
        .scale = a.scale};
    if (a.row.empty()) {
      launch_tiles<GroupedTile<GroupedKind::kWgrad, GroupedRows::kInOrder, N>>(on, kName, g, parts);
    } else {
      launch_tiles<GroupedTile<GroupedKind::kWgrad, GroupedRows::kGathered, N>>(on, kName, g,
                                                                                parts);
    }
  });
  if (slots > 0) add_pieces(on, work, a.dweight, a.sum);
  if (a.sum == GradientSum::kStore) zero_idle_experts(on, a.offsets, a.dweight);
}

}  // namespace assay::gpu
