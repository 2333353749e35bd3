#include "models/linear/quantised_products.h"

#include <algorithm>

#include "cuda/transfer.h"
#include "ops/zero.h"

namespace assay {

namespace {

bool in_force(const QuantPass& q, const OperandFormat& f) {
  return q.state.in_recipe() && f.quantised();
}

bool has_whole_amax(const OperandFormat& f) {
  return f.quantised() && has_tensor_scale(f.format.scale) && !f.rotated;
}
bool has_rotated_amax(const OperandFormat& f) {
  return f.quantised() && has_tensor_scale(f.format.scale) && f.rotated;
}

FakeCopy copy_into(const QuantPass& q, const DecodedOperand& to, int64_t rows, int64_t columns,
                   const OperandFormat& format, uint64_t stream, uint32_t site) {
  return {.y = to.as(rows, columns),
          .tensor_scale = to.tensor_scale,
          .site = site,
          .format = format.format,
          .key = {.seed = q.scratch.seed, .stream = stream, .step = 0}};
}

QuantisedProducts::Operand operand(const FakeCopy& copy) {
  return {.values = copy.y,
          .scale = has_tensor_scale(copy.format.scale) ? View<const float, 1>(copy.tensor_scale)
                                                       : View<const float, 1>{}};
}

}  // namespace

QuantisedProducts::QuantisedProducts(const ProductSite& site)
    : site_(site),
      dgrad_stream_(stream_id(site_.weight + ".dgrad.gradient")),
      wgrad_stream_(stream_id(site_.weight + ".wgrad.gradient")),
      fprop_stream_(stream_id(site_.weight + ".fprop.input")),
      wgrad_input_stream_(stream_id(site_.weight + ".wgrad.input")),
      weights_(site_.weight, site_.formats) {
  if (site_.native_capability == 0) return;
  native_ = std::make_unique<NativeProducts>(site_);
  if (!native_->any()) native_.reset();
}

void QuantisedProducts::number_operands(uint32_t first) {
  first_site_ = first;
  if (!native_) return;
  const uint32_t weight = site_of(kWeight, kRow);
  native_->number_operands(
      {.fprop_input = site_of(kInput, kRow),
       .fprop_weight = weight,
       .dgrad_gradient = site_of(kGradient, kRow),
       .dgrad_weight = formats_.one_weight() ? weight : site_of(kWeight, kColumn),
       .wgrad_gradient = site_of(kGradient, kColumn),
       .wgrad_input = site_of(kInput, kColumn)});
}

void QuantisedProducts::plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend) {
  weights_.plan(plan, spec, backend);
  if (native_) native_->plan(plan, spec);
  plan.add(Section::kScratch, site_.weight + ".measures", measures_,
           {kMeasuredOperands, 2 * kFakeMeasures});
  plan.add(Section::kHostVisible, site_.weight + ".measures", read_measures_,
           {kMeasuredOperands, 2 * kFakeMeasures});
}

void QuantisedProducts::refresh_weights(Exec on, const QuantPass& q) const {
  if (native_) native_->refresh_weights(on, q, weights_.master());
  // Sampled steps measure the decoded copy.
  const bool decoded = native_ == nullptr || !native_->has_all_of_weight(q);
  if (decoded || q.state.sampled()) {
    weights_.refresh(on, q, measures_of(q, kWeight), weight_sites());
  }
}

void QuantisedProducts::refresh_for_evaluation(Exec on, const QuantPass& q) const {
  if (native_ && native_->has_all_of_weight(q)) weights_.refresh(on, q, {}, weight_sites());
}

std::vector<QuantisedOperandState> QuantisedProducts::states() const {
  std::vector<QuantisedOperandState> states;
  const auto add = [&](const char* operand, const OperandFormat& format, MeasuredOperand row,
                       Copy copy) {
    if (!format.quantised()) return;
    states.push_back(
        {.weight = site_.weight,
         .role = product_role_name(site_.role),
         .layer = site_.layer,
         .operand = operand,
         .format = format_name(format),
         .site = site_of(row, copy),
         .measures = {read_measures_.row(row) + int(copy) * kFakeMeasures, {kFakeMeasures}}});
  };
  add("fprop.input", formats_.fprop_input, kInput, kRow);
  add("fprop.weight", formats_.fprop_weight, kWeight, kRow);
  add("dgrad.gradient", formats_.dgrad_gradient, kGradient, kRow);
  if (!formats_.one_weight()) add("dgrad.weight", formats_.dgrad_weight, kWeight, kColumn);
  add("wgrad.gradient", formats_.wgrad_gradient, kGradient, kColumn);
  add("wgrad.input", formats_.wgrad_input, kInput, kColumn);
  return states;
}

void QuantisedProducts::begin_measures(Exec on, const QuantPass& q) const {
  // Flips compare with the weight before the step's update, whose decoded copy is made in sampled
  // steps only.
  refresh_for_evaluation(on, q);
  zero(on, measures_);
}

void QuantisedProducts::read_measures(Exec on) const {
  copy(on, read_measures_, measures_);
}

void QuantisedProducts::add_measures(Group& ranks) const {
  const auto n = size_t(read_measures_.size());
  std::vector<double> all(size_t(ranks.size()) * n);
  ranks.all_gather({}, all.data(), read_measures_.data, n * sizeof(double));
  for (size_t i = 0; i < n; ++i) {
    if (i / (2 * kFakeMeasures) == kWeight) continue;  // every rank measured the same weights
    double& own = read_measures_.data[i];
    own = all[i];
    for (size_t r = 1; r < size_t(ranks.size()); ++r) {
      const double more = all[r * n + i];
      own = i % kFakeMeasures < kFakeSums ? own + more : std::max(own, more);
    }
  }
}

View<double, 1> QuantisedProducts::measures_of(const QuantPass& q, MeasuredOperand operand) const {
  if (!q.state.sampled()) return {};
  return {measures_.row(operand), {2 * kFakeMeasures}};
}

bool QuantisedProducts::needs_input_amax() const {
  return has_whole_amax(formats_.fprop_input) || has_whole_amax(formats_.wgrad_input);
}

// Both copies of a gradient come from one pass, which a rotated amax needs in any case.
bool QuantisedProducts::needs_gradient_amax() const {
  const OperandFormat &row = formats_.dgrad_gradient, &column = formats_.wgrad_gradient;
  return (has_whole_amax(row) || has_whole_amax(column)) && !has_rotated_amax(column);
}

FakeQuantise<bf16> QuantisedProducts::operation(const QuantPass& q, MeasuredOperand operand,
                                                View<const bf16, 2> x, const AssignedRows& rows,
                                                const OperandFormat& column,
                                                View<const float, 1> amax) const {
  return {.measures = measures_of(q, operand),
          .not_finite = q.scratch.not_finite,
          .amax = q.scratch.amax,
          .partial = q.scratch.partial,
          .x = x,
          .known_amax = amax,
          .gather = rows.gather,
          .offsets = rows.offsets,
          .draw = q.scratch.draw,
          .rotation = column.rotated ? ColumnRotation::kHadamard16 : ColumnRotation::kNone,
          .signs = kRotationSigns};
}

QuantisedProducts::Operand QuantisedProducts::fprop_input(Exec on, const QuantPass& q,
                                                          View<const bf16, 2> x,
                                                          View<const float, 1> amax) const {
  const OperandFormat& format = formats_.fprop_input;
  if (!in_force(q, format)) return {.values = x};
  FakeQuantise<bf16> op = operation(q, kInput, x, {}, {}, amax);
  op.row =
      copy_into(q, q.scratch.row, x.dim[0], x.dim[1], format, fprop_stream_, site_of(kInput, kRow));
  fake_quantise<bf16>(on, op);
  return operand(op.row);
}

GradientOperands<bf16> QuantisedProducts::gradient(Exec on, const QuantPass& q,
                                                   View<const bf16, 2> dy, const AssignedRows& rows,
                                                   View<const float, 1> amax) const {
  const OperandFormat &row = formats_.dgrad_gradient, &column = formats_.wgrad_gradient;
  GradientOperands<bf16> result{.row = {.values = dy}, .column = {.values = dy}};
  const bool row_read = native_ == nullptr || !native_->dgrad(q) || q.state.sampled();
  const bool column_read = native_ == nullptr || !native_->wgrad(q) || q.state.sampled();
  FakeQuantise<bf16> op = operation(q, kGradient, dy, rows, column, amax);
  if (in_force(q, row) && row_read) {
    op.row = copy_into(q, q.scratch.row, dy.dim[0], dy.dim[1], row, dgrad_stream_,
                       site_of(kGradient, kRow));
    result.row = operand(op.row);
  }
  if (in_force(q, column) && column_read) {
    op.column = copy_into(q, q.scratch.column, dy.dim[0], dy.dim[1], column, wgrad_stream_,
                          site_of(kGradient, kColumn));
    result.column = operand(op.column);
  }
  if (!op.row.y.empty() || !op.column.y.empty()) fake_quantise<bf16>(on, op);
  return result;
}

QuantisedProducts::Operand QuantisedProducts::wgrad_input(Exec on, const QuantPass& q,
                                                          View<const bf16, 2> x,
                                                          const AssignedRows& rows,
                                                          View<const float, 1> amax) const {
  const OperandFormat& format = formats_.wgrad_input;
  if (!in_force(q, format)) return {.values = x};
  FakeQuantise<bf16> op = operation(q, kInput, x, rows, format, amax);
  op.column = copy_into(q, q.scratch.other, op.rows(), x.dim[1], format, wgrad_input_stream_,
                        site_of(kInput, kColumn));
  fake_quantise<bf16>(on, op);
  Operand result = operand(op.column);
  result.gathered = true;
  return result;
}

View<const float, 1> QuantisedProducts::fprop_weight_scale(const QuantPass& q) const {
  const bool left =
      in_force(q, formats_.fprop_weight) && has_tensor_scale(formats_.fprop_weight.format.scale);
  return left ? weights_.fprop_scale() : View<const float, 1>{};
}

View<const float, 1> QuantisedProducts::dgrad_weight_scale(const QuantPass& q) const {
  const bool left =
      in_force(q, formats_.dgrad_weight) && has_tensor_scale(formats_.dgrad_weight.format.scale);
  return left ? weights_.dgrad_scale() : View<const float, 1>{};
}

View<float, 1> input_amax_slot(const QuantisedProducts* products, const QuantPass& q,
                               View<float, 1> amax_slot) {
  const bool asks = products != nullptr && products->needs_input_amax();
  return asks && q.state.in_recipe() ? amax_slot : View<float, 1>{};
}

View<float, 1> gradient_amax_slot(const QuantisedProducts* products, const QuantPass& q,
                                  View<float, 1> amax_slot) {
  const bool asks = products != nullptr && products->needs_gradient_amax();
  return asks && q.state.in_recipe() ? amax_slot : View<float, 1>{};
}

}  // namespace assay
