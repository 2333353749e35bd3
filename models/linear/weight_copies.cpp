#include "models/linear/weight_copies.h"

#include <algorithm>
#include <vector>

#include "cuda/transfer.h"
#include "ops/cast.h"

namespace assay {

WeightCopies::WeightCopies(std::string name, const ProductFormats& formats)
    : name_(std::move(name)), one_(formats.one_weight()) {
  fprop_.format = formats.fprop_weight;
  dgrad_.format = formats.dgrad_weight;
}

void WeightCopies::plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend) {
  const bool stack = spec.shape.size() == 3;
  experts_ = stack ? spec.shape[0] : 0;
  out_ = spec.shape[stack ? 1 : 0];
  in_ = spec.shape[stack ? 2 : 1];
  plan_copy(plan, name_ + ".fprop", fprop_, FakeWay::kRow, backend);
  if (!one_) plan_copy(plan, name_ + ".dgrad", dgrad_, FakeWay::kColumn, backend);
  if (stack) plan.add(Section::kParameters, name_ + ".rows", offsets_, {experts_ + 1});
}

void WeightCopies::plan_copy(MemoryPlan& plan, const std::string& name, Copy& copy, FakeWay way,
                             Backend backend) const {
  const int64_t matrices = std::max<int64_t>(experts_, 1), size = matrices * out_ * in_;
  plan.add(Section::kParameters, name, copy.plain, {size});
  plan.add(Section::kParameters, name + ".scale", copy.scale, {2});
  if (copy.format.quantised() && copy.format.format.scale != ScaleKind::kTensor) {
    plan.add(Section::kParameters, name + ".scales", copy.scales,
             {fake_quantise_scales(copy.format.format.scale, way, matrices * out_, matrices, in_)});
  }
  if (backend == Backend::kGpu) return;  // GPU products read the plain weight
  const int64_t bytes = experts_ > 0 ? weight_stack_pack_bytes<bf16>(experts_, out_, in_)
                                     : weight_pack_bytes<bf16>(out_, in_);
  plan.add(Section::kParameters, name + ".packed", copy.packed, {bytes});
}

void WeightCopies::bind(Exec on, const MasterView& master) {
  master_ = master;
  if (offsets_.empty()) return;
  std::vector<int32_t> rows(size_t(experts_) + 1);
  for (int64_t e = 0; e <= experts_; ++e) rows[size_t(e)] = int32_t(e * out_);
  copy(on, offsets_, View<const int32_t, 1>{rows.data(), {experts_ + 1}});
  wait(on);
}

void WeightCopies::refresh(Exec on, const QuantPass& q, View<double, 1> measures,
                           const Sites& sites) const {
  make(on, q, fprop_, FakeWay::kRow, measures, sites.fprop);
  if (!one_) make(on, q, dgrad_, FakeWay::kColumn, measures, sites.dgrad);
}

void WeightCopies::make(Exec on, const QuantPass& q, const Copy& copy, FakeWay way,
                        View<double, 1> measures, uint32_t site) const {
  if (q.state.phase == PrecisionPhase::kBf16 || !copy.format.quantised()) {
    round(on, copy.plain);
  } else if (master_.fp32.empty()) {
    quantise(on, q, master_.rounded, copy, way, measures, site);
  } else {
    quantise(on, q, master_.fp32, copy, way, measures, site);
  }
  pack(on, copy);
}

void WeightCopies::round(Exec on, View<bf16, 1> to) const {
  if (master_.fp32.empty()) return assay::copy(on, to, master_.rounded);
  cast<bf16, float>(on, {.y = to, .x = master_.fp32});
}

template <typename M>
void WeightCopies::quantise(Exec on, const QuantPass& q, View<const M, 1> master, const Copy& copy,
                            FakeWay way, View<double, 1> measures, uint32_t site) const {
  const int64_t rows = copy.plain.dim[0] / in_;
  const FakeCopy decoded{.y = {copy.plain.data, {rows, in_}},
                         .tensor_scale = copy.scale,
                         .scales = copy.scales,
                         .flips = measures.empty() ? Flips::kNotCounted : Flips::kCounted,
                         .site = site,
                         .format = copy.format.format,
                         .key = {.seed = q.scratch.seed, .stream = stream_id(name_), .step = 0}};
  FakeQuantise<M> op{.measures = measures,
                     .not_finite = q.scratch.not_finite,
                     .amax = q.scratch.amax,
                     .partial = q.scratch.partial,
                     .x = {master.data, {rows, in_}},
                     .offsets = offsets_,
                     .draw = q.scratch.draw};
  (way == FakeWay::kRow ? op.row : op.column) = decoded;
  fake_quantise<M>(on, op);
}

void WeightCopies::pack(Exec on, const Copy& copy) const {
  if (copy.packed.empty()) return;
  if (experts_ > 0) {
    weight_stack_pack<bf16>(on, {.packed = copy.packed, .plain = stack(copy).plain});
  } else {
    weight_pack<bf16>(on, {.packed = copy.packed, .plain = matrix(copy).plain});
  }
}

WeightMatrix<bf16> WeightCopies::matrix(const Copy& copy) const {
  return {{copy.plain.data, {out_, in_}}, copy.packed};
}

WeightStack<bf16> WeightCopies::stack(const Copy& copy) const {
  return {{copy.plain.data, {experts_, out_, in_}}, copy.packed};
}

}  // namespace assay
