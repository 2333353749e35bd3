#include <algorithm>

#include "ops/grouped/gpu_launch.h"
#include "ops/grouped_linear.h"

namespace assay::gpu {

namespace {

template <typename T>
void launch_forward(Exec on, const GroupedForward<T>& a) {
  constexpr const char* kName = "grouped_linear_forward";
  const int64_t assignments = a.y.dim[0], out = a.y.dim[1], in = a.x.dim[1];
  const auto& w = a.weight.plain;
  if (a.y.size() == 0) return;
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  if constexpr (sizeof(T) == 2) {
    if (whole_pieces({a.y.data, a.x.data, w.data}, out, in)) {
      cut_rows(on, work, a.offsets, kGroupedTileM);
      const int64_t parts = grouped_parts_limit(assignments, w.dim[0], kGroupedTileM);
      return with_tile_width(out, [&]<int N>() {
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
          launch_tiles<GroupedTile<GroupedKind::kForward, GroupedRows::kInOrder, N>>(on, kName, g,
                                                                                     parts);
        } else {
          launch_tiles<GroupedTile<GroupedKind::kForward, GroupedRows::kGathered, N>>(on, kName, g,
                                                                                      parts);
        }
      });
    }
  }
  cut_rows(on, work, a.offsets, kPlainTile);
  launch_plain<GroupedKind::kForward, T>(on, kName,
                                         {.c = a.y.data,
                                          .a = a.x.data,
                                          .b = w.data,
                                          .row = a.row.data,
                                          .work = work,
                                          .n = int(out),
                                          .k = int(in),
                                          .scale = a.scale},
                                         grouped_parts_limit(assignments, w.dim[0], kPlainTile));
}

template <typename T>
void launch_dgrad(Exec on, const GroupedDgrad<T>& a) {
  constexpr const char* kName = "grouped_linear_dgrad";
  const int64_t assignments = a.dy.dim[0], out = a.dy.dim[1], in = a.dx.dim[1];
  const auto& w = a.weight.plain;
  if (a.dx.size() == 0) return;
  const GroupedParts work = grouped_parts(on, kName, assignments, w.dim[0]);
  if constexpr (sizeof(T) == 2) {
    if (whole_pieces({a.dx.data, a.dy.data, w.data}, out, in)) {
      cut_rows(on, work, a.offsets, kGroupedTileM);
      const int64_t parts = grouped_parts_limit(assignments, w.dim[0], kGroupedTileM);
      return with_tile_width(in, [&]<int N>() {
        launch_tiles<GroupedTile<GroupedKind::kDgrad, GroupedRows::kInOrder, N>>(
            on, kName,
            {.a = rows_map("dy", a.dy.data, assignments, out, kGroupedTileM),
             .b = weight_map(w, kGroupedSlab),
             .c = a.dx.data,
             .work = work,
             .n = int(in),
             .k = int(out),
             .scale = a.scale},
            parts);
      });
    }
  }
  cut_rows(on, work, a.offsets, kPlainTile);
  launch_plain<GroupedKind::kDgrad, T>(on, kName,
                                       {.c = a.dx.data,
                                        .a = a.dy.data,
                                        .b = w.data,
                                        .work = work,
                                        .n = int(in),
                                        .k = int(out),
                                        .scale = a.scale},
                                       grouped_parts_limit(assignments, w.dim[0], kPlainTile));
}

template <typename T>
void launch_wgrad(Exec on, const GroupedWgrad<T>& a) {
  constexpr const char* kName = "grouped_linear_wgrad";
  const int64_t assignments = a.dy.dim[0], experts = a.dweight.dim[0];
  const int64_t out = a.dweight.dim[1], in = a.dweight.dim[2];
  if (assignments == 0 || a.dweight.size() == 0) return;
  const GroupedParts work = grouped_parts(on, kName, assignments, experts, out, in);
  if constexpr (sizeof(T) == 2) {
    if (whole_pieces({a.dweight.data, a.dy.data, a.x.data}, out, in)) {
      order_experts(on, work, a.offsets, GroupedCut::kPieces);
      const int64_t slots = grouped_slots(assignments);
      const int64_t parts = std::min(experts, assignments) + slots;
      with_tile_width(in, [&]<int N>() {
        const GroupedTileArgs g = {.a = rows_map("dy", a.dy.data, assignments, out, kGroupedTileK),
                                   .b = rows_map("x", a.x.data, a.x.dim[0], in, kGroupedTileK),
                                   .c = a.dweight.data,
                                   .x = a.x.data,
                                   .row = a.row.data,
                                   .work = work,
                                   .m = int(out),
                                   .n = int(in),
                                   .scale = a.scale};
        if (a.row.empty()) {
          launch_tiles<GroupedTile<GroupedKind::kWgrad, GroupedRows::kInOrder, N>>(on, kName, g,
                                                                                   parts);
        } else {
          launch_tiles<GroupedTile<GroupedKind::kWgrad, GroupedRows::kGathered, N>>(on, kName, g,
                                                                                    parts);
        }
      });
      if (slots > 0) add_pieces(on, work, a.dweight);
      return;
    }
  }
  order_experts(on, work, a.offsets, GroupedCut::kWhole);
  launch_plain<GroupedKind::kWgrad, T>(on, kName,
                                       {.dweight = a.dweight.data,
                                        .a = a.dy.data,
                                        .b = a.x.data,
                                        .row = a.row.data,
                                        .work = work,
                                        .m = int(out),
                                        .n = int(in),
                                        .scale = a.scale},
                                       std::min(experts, assignments));
}

}  // namespace

void grouped_linear_forward(Exec on, const GroupedForward<float>& a) {
  launch_forward(on, a);
}
void grouped_linear_forward(Exec on, const GroupedForward<bf16>& a) {
  launch_forward(on, a);
}
void grouped_linear_dgrad(Exec on, const GroupedDgrad<float>& a) {
  launch_dgrad(on, a);
}
void grouped_linear_dgrad(Exec on, const GroupedDgrad<bf16>& a) {
  launch_dgrad(on, a);
}
void grouped_linear_wgrad(Exec on, const GroupedWgrad<float>& a) {
  launch_wgrad(on, a);
}
void grouped_linear_wgrad(Exec on, const GroupedWgrad<bf16>& a) {
  launch_wgrad(on, a);
}

}  // namespace assay::gpu
