#include <algorithm>

#include "ops/grouped/gpu_simple.h"
#include "ops/grouped/gpu_tensor.h"
#include "ops/grouped_linear.h"
#include "ops/zero.h"

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
    const bool by_wgmma = on.gpu->kind.products == Products::kWgmma;
    if (whole_pieces({a.y.data, a.x.data, w.data}, out, in)) {
      return by_wgmma ? grouped_forward_wgmma(on, a) : grouped_forward_mma(on, a);
    }
  }
  cut_rows(on, work, a.offsets, assignments, kPlainTile);
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
    const bool by_wgmma = on.gpu->kind.products == Products::kWgmma;
    if (whole_pieces({a.dx.data, a.dy.data, w.data}, out, in)) {
      return by_wgmma ? grouped_dgrad_wgmma(on, a) : grouped_dgrad_mma(on, a);
    }
  }
  cut_rows(on, work, a.offsets, assignments, kPlainTile);
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
  if (a.dweight.size() == 0) return;
  if (assignments == 0) {
    if (a.sum == GradientSum::kStore) zero(on, a.dweight);
    return;
  }
  const GroupedParts work = grouped_parts(on, kName, assignments, experts, out, in, a.most_rows);
  if constexpr (sizeof(T) == 2) {
    const bool by_wgmma = on.gpu->kind.products == Products::kWgmma;
    if (whole_pieces({a.dweight.data, a.dy.data, a.x.data}, out, in)) {
      return by_wgmma ? grouped_wgrad_wgmma(on, a) : grouped_wgrad_mma(on, a);
    }
  }
  if (a.sum == GradientSum::kStore) zero(on, a.dweight);
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
