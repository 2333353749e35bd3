#include "ops/grouped/gpu_launch.h"
#include "ops/grouped/gpu_scaled.h"

namespace assay::gpu {

namespace {

// Bounds: as in ops/grouped_swiglu.cu, with tensor cores at twice the bf16 rate and operands of
// half the bytes. At 65536 tokens, width 768, 6 of 64 experts, ffn 384: gate and up 464 GF, 290 us;
// down and both dgrads are bound by writing bf16. Tiles are 128 x 128: the sums of one stage and
// the running sums take 64 registers per thread each.
constexpr int kTileN = 128;

// Dimensions in order of their strides, as the driver requires. Loads past the k or the lines of an
// expert are outside the map and return zeros.
TensorMap stack_map(const CodedStack& w) {
  const int64_t lines = w.lines(), k = w.k(), pitch = w.all.k();
  TensorMapSpec spec{.name = "coded expert weights", .base = code_pairs(w.all), .rank = 3};
  const auto set = [&](int dim, int64_t size, int64_t stride, int box) {
    spec.dim[dim] = size;
    if (dim > 0) spec.stride_bytes[dim - 1] = stride;
    spec.box[dim] = box;
  };
  const bool by_expert = w.along == CodedStack::Experts::kAlongK;
  set(0, k / 2, 0, kGroupedSlab);
  set(by_expert ? 2 : 1, lines, pitch, kTileN / 2);
  set(by_expert ? 1 : 2, w.experts, by_expert ? k : lines * pitch, 1);
  return make_tensor_map(spec);
}

// Arguments common to the three ops; also cuts the work. The caller sets c and its companions.
GroupedTileArgs product_args(Exec on, const char* name, const CodedMatrix& x, const CodedStack& w,
                             View<const int32_t, 1> offsets, int64_t assignments) {
  GroupedTileArgs g{.a = rows_map("x", code_pairs(x), x.lines(), x.k() / 2, kGroupedTileM),
                    .b = stack_map(w),
                    .c = nullptr,
                    .x = code_pairs(x),
                    .work = grouped_parts(on, name, assignments, w.experts),
                    .n = int(w.lines()),
                    .k = int(x.k() / 2),
                    .blocks = block_scales(x, w),
                    .b_by_expert = w.along == CodedStack::Experts::kAlongK};
  if (x.format.scale == ScaleKind::kTensor) g.scale = {x.tensor_scale, w.all.tensor_scale};
  cut_rows(on, g.work, offsets, assignments, kGroupedTileM);
  return g;
}

template <GroupedRows Rows, GroupedEnd End>
void launch_product(Exec on, const char* name, const GroupedTileArgs& g, const CodedMatrix& x,
                    const CodedStack& w, int64_t assignments) {
  const int64_t parts = grouped_parts_limit(assignments, w.experts, kGroupedTileM);
  const auto launch_as = [&]<GroupedElement Element>() {
    launch_tiles<GroupedTile<GroupedKind::kForward, Rows, kTileN, End, Element>>(on, name, g,
                                                                                 parts);
  };
  if (x.format.element == ElementFormat::kE4M3) {
    return launch_as.template operator()<GroupedElement::kE4M3>();
  }
  launch_as.template operator()<GroupedElement::kE5M2>();
}

}  // namespace

void grouped_scaled_linear_wgmma(Exec on, const GroupedScaledLinear& a) {
  constexpr const char* kName = "grouped_scaled_linear";
  const int64_t assignments = a.y.dim[0];
  GroupedTileArgs g = product_args(on, kName, a.x, a.weight, a.offsets, assignments);
  g.c = a.y.data;
  launch_product<GroupedRows::kInOrder, GroupedEnd::kPlain>(on, kName, g, a.x, a.weight,
                                                            assignments);
}

void grouped_scaled_swiglu_forward_wgmma(Exec on, const GroupedScaledSwigluForward& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_forward";
  const int64_t assignments = a.h.dim[0];
  GroupedTileArgs g = product_args(on, kName, a.x, a.weight, a.offsets, assignments);
  g.c = a.gate_up.data;
  g.h = a.h.data;
  g.amax = a.amax.data;
  g.row = a.row.data;
  g.n = int(a.h.dim[1]);
  launch_product<GroupedRows::kGathered, GroupedEnd::kSwiglu>(on, kName, g, a.x, a.weight,
                                                              assignments);
}

void grouped_scaled_swiglu_dgrad_wgmma(Exec on, const GroupedScaledSwigluDgrad& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_dgrad";
  const int64_t assignments = a.gate_up.dim[0];
  GroupedTileArgs g = product_args(on, kName, a.dy, a.weight, a.offsets, assignments);
  g.c = a.dgate_up.data;
  g.amax = a.amax.data;
  g.gate_up = a.gate_up.data;
  launch_product<GroupedRows::kInOrder, GroupedEnd::kSwigluGradient>(on, kName, g, a.dy, a.weight,
                                                                     assignments);
}

}  // namespace assay::gpu
