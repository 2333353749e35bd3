#include "models/linear/native_products.h"

#include <array>

#include "base/check.h"
#include "models/linear/quantised_products.h"
#include "ops/amax.h"

namespace assay {

namespace {

ProductFormats laid_out(ProductFormats f) {
  for (OperandFormat* o : {&f.fprop_input, &f.fprop_weight, &f.dgrad_gradient, &f.dgrad_weight,
                           &f.wgrad_gradient, &f.wgrad_input}) {
    o->format = hardware_format(o->format);
  }
  return f;
}

enum class Sum { kOverFeatures, kOverTokens };

std::string product_problem(const OperandFormat& a, const OperandFormat& b, Sum sum,
                            const ExpertWidths& experts, int capability) {
  if (!a.quantised() || !b.quantised()) return "one operand is in bf16";
  if (experts.hidden == 0) return scaled_linear_problem(a.format, b.format, capability);
  if (sum == Sum::kOverTokens) return "the experts' wgrad has no 8-bit kernel";
  return grouped_scaled_problem(a.format, b.format, experts.hidden, experts.ffn, capability);
}

bool has_kernel(const ProductSite& site, const OperandFormat& a, const OperandFormat& b, Sum sum) {
  return product_problem(a, b, sum, site.experts, site.native_capability).empty();
}

struct NamedProduct {
  const char* name;
  const OperandFormat &a, &b;
  Sum sum = Sum::kOverFeatures;
  bool quantised() const { return a.quantised() || b.quantised(); }
};

std::array<NamedProduct, 3> products_of(const ProductFormats& f) {
  return {{{"fprop", f.fprop_input, f.fprop_weight},
           {"dgrad", f.dgrad_gradient, f.dgrad_weight},
           {"wgrad", f.wgrad_gradient, f.wgrad_input, Sum::kOverTokens}}};
}

// The text of native_rows() for one role.
std::string native_row(const ProductFormats& f, const ExpertWidths& experts, int capability) {
  std::string native, why;
  for (const NamedProduct& p : products_of(f)) {
    if (!p.quantised()) continue;
    const std::string problem = product_problem(p.a, p.b, p.sum, experts, capability);
    if (problem.empty()) {
      native += (native.empty() ? "" : ", ") + std::string(p.name);
    } else if (why.empty()) {
      why = problem;
    }
  }
  if (native.empty()) return "simulated in bf16: " + why;
  return native + " native" + (why.empty() ? "" : ", the others simulated: " + why);
}

// A copy to make along the rows or the columns of a matrix.
struct Wanted {
  const CodedBuffer* to = nullptr;  // null: no such copy
  OperandFormat format = {};
  uint64_t stream = 0;
  uint32_t site = 0;
};

// Makes both copies of x, from one read if their formats are the same. A tensor scale needs a read
// before that, unless `known` has the amax of x and nothing is rotated.
template <typename X>
void code(Exec on, const QuantPass& q, View<const X, 2> x, const Wanted& row, const Wanted& column,
          View<const float, 1> known = {}) {
  if (row.to != nullptr && column.to != nullptr && !(row.format.format == column.format.format)) {
    code(on, q, x, row, {}, known);
    return code(on, q, x, {}, column, known);
  }
  const OperandFormat& any = row.to != nullptr ? row.format : column.format;
  const bool rotated = column.to != nullptr && column.format.rotated;
  const bool found = rotated || known.empty();
  if (has_tensor_scale(any.format.scale) && found) {
    amax<X>(on, {.amax = q.scratch.amax.rows(0, 1),
                 .rotated = rotated ? q.scratch.amax.rows(1, 1) : View<float, 1>{},
                 .x = x,
                 .signs = kRotationSigns});
  }
  const auto copy_of = [&](const Wanted& w, int64_t lines, int64_t k, int64_t which) {
    if (w.to == nullptr) return QuantisedCopy{};
    QuantisedCopy copy = w.to->copy(w.format.format, lines, k);
    if (has_tensor_scale(w.format.format.scale))
      copy.amax = found ? q.scratch.amax.rows(which, 1) : known;
    copy.site = w.site;
    copy.key = {.seed = q.scratch.seed, .stream = w.stream, .step = 0};
    return copy;
  };
  const int64_t rows = x.dim[0], columns = x.dim[1];
  quantise<X>(on, {.row = copy_of(row, rows, columns, 0),
                   .column = copy_of(column, columns, padded_length(any.format.scale, rows),
                                     rotated ? 1 : 0),
                   .not_finite = q.scratch.not_finite,
                   .x = x,
                   .draw = q.scratch.draw,
                   .format = any.format,
                   .rotation = rotated ? ColumnRotation::kHadamard16 : ColumnRotation::kNone,
                   .signs = kRotationSigns});
}

// With tensor scales, forward products accumulate in the tensor cores, as in the published recipe;
// gradients need more precise sums.
CodedSums forward_sums(const OperandFormat& input) {
  return input.format.scale == ScaleKind::kTensor ? CodedSums::kFast : CodedSums::kPromoted;
}

QuantisedCopy of_site(QuantisedCopy copy, uint32_t site) {
  copy.site = site;
  return copy;
}

}  // namespace

NativeProducts::NativeProducts(const ProductSite& site)
    : name_(site.weight),
      formats_(laid_out(site.formats)),
      fprop_(has_kernel(site, formats_.fprop_input, formats_.fprop_weight, Sum::kOverFeatures)),
      dgrad_(has_kernel(site, formats_.dgrad_gradient, formats_.dgrad_weight, Sum::kOverFeatures)),
      wgrad_(has_kernel(site, formats_.wgrad_gradient, formats_.wgrad_input, Sum::kOverTokens)),
      dgrad_stream_(stream_id(name_ + ".dgrad.gradient")),
      wgrad_stream_(stream_id(name_ + ".wgrad.gradient")),
      fprop_stream_(stream_id(name_ + ".fprop.input")),
      wgrad_input_stream_(stream_id(name_ + ".wgrad.input")) {}

void NativeProducts::plan(MemoryPlan& plan, const ParameterSpec& spec) {
  const bool stack = spec.shape.size() == 3;
  experts_ = stack ? spec.shape[0] : 1;
  out_ = spec.shape[stack ? 1 : 0];
  in_ = spec.shape[stack ? 2 : 1];
  const auto add = [&](CodedBuffer& to, const char* name, const OperandFormat& format,
                       int64_t lines, int64_t k) {
    CodedBuffer::Room room;
    room.reach(format.format, lines, k);
    to.plan(plan, Section::kParameters, name_ + name, room);
  };
  if (fprop_) add(fprop_weight_, ".fprop", formats_.fprop_weight, experts_ * out_, in_);
  if (dgrad_) add(dgrad_weight_, ".dgrad", formats_.dgrad_weight, in_, experts_ * out_);
}

void NativeProducts::refresh_weights(Exec on, const QuantPass& q, const MasterView& master) const {
  if (!q.state.in_recipe() || (!fprop_ && !dgrad_)) return;
  const uint64_t stream = stream_id(name_);
  Wanted row{.format = formats_.fprop_weight, .stream = stream, .site = sites_.fprop_weight};
  Wanted column{.format = formats_.dgrad_weight, .stream = stream, .site = sites_.dgrad_weight};
  if (fprop_) row.to = &fprop_weight_;
  if (dgrad_) column.to = &dgrad_weight_;
  if (master.fp32.empty()) {
    code<bf16>(on, q, {master.rounded.data, {experts_ * out_, in_}}, row, column);
  } else {
    code<float>(on, q, {master.fp32.data, {experts_ * out_, in_}}, row, column);
  }
}

void NativeProducts::forward(Exec on, const QuantPass& q, View<const bf16, 2> x, View<bf16, 2> y,
                             View<const float, 1> amax) const {
  code_input(on, q, x, amax);
  multiply_input(on, q, y);
}

void NativeProducts::multiply_input(Exec on, const QuantPass& q, View<bf16, 2> y) const {
  scaled_linear<bf16>(
      on, {.y = y,
           .left = q.scratch.coded.row.matrix(formats_.fprop_input.format, y.dim[0], in_),
           .right = fprop_weight_.matrix(formats_.fprop_weight.format, out_, in_),
           .sums = forward_sums(formats_.fprop_input)});
}

CodedMatrix NativeProducts::code_input(Exec on, const QuantPass& q, View<const bf16, 2> x,
                                       View<const float, 1> amax) const {
  const OperandFormat& input = formats_.fprop_input;
  code(on, q, x, {&q.scratch.coded.row, input, fprop_stream_, sites_.fprop_input}, {}, amax);
  return q.scratch.coded.row.matrix(input.format, x.dim[0], in_);
}

void NativeProducts::code_gradient(Exec on, const QuantPass& q, View<const bf16, 2> dy,
                                   View<const float, 1> amax, const CodedBuffer& columns) const {
  Wanted row{
      .format = formats_.dgrad_gradient, .stream = dgrad_stream_, .site = sites_.dgrad_gradient};
  Wanted column{
      .format = formats_.wgrad_gradient, .stream = wgrad_stream_, .site = sites_.wgrad_gradient};
  if (dgrad(q)) row.to = &q.scratch.coded.row;
  if (wgrad(q)) column.to = &columns;
  if (row.to != nullptr || column.to != nullptr) code(on, q, dy, row, column, amax);
}

void NativeProducts::wgrad(Exec on, const QuantPass& q, View<const bf16, 2> x,
                           View<float, 2> dweight, View<const float, 1> amax) const {
  const OperandFormat& input = formats_.wgrad_input;
  code(on, q, x, {}, {&q.scratch.coded.other, input, wgrad_input_stream_, sites_.wgrad_input},
       amax);
  multiply_gradient(on, q, q.scratch.coded.column, x.dim[0], dweight);
}

void NativeProducts::multiply_gradient(Exec on, const QuantPass& q, const CodedBuffer& columns,
                                       int64_t rows, View<float, 2> dweight) const {
  const OperandFormat &gradient = formats_.wgrad_gradient, &input = formats_.wgrad_input;
  const auto k = [&](const OperandFormat& f) { return padded_length(f.format.scale, rows); };
  scaled_linear<float>(on, {.y = dweight,
                            .left = columns.matrix(gradient.format, out_, k(gradient)),
                            .right = q.scratch.coded.other.matrix(input.format, in_, k(input)),
                            .add = dweight});
}

QuantisedCopy NativeProducts::input_copy(const QuantPass& q, int64_t rows) const {
  return of_site(q.scratch.coded.row.copy(formats_.fprop_input.format, rows, in_),
                 sites_.fprop_input);
}

QuantisedCopy NativeProducts::gradient_row(const QuantPass& q, int64_t rows) const {
  return of_site(q.scratch.coded.row.copy(formats_.dgrad_gradient.format, rows, out_),
                 sites_.dgrad_gradient);
}

QuantisedCopy NativeProducts::gradient_column(const QuantPass& q, int64_t rows) const {
  const QuantFormat& f = formats_.wgrad_gradient.format;
  return of_site(q.scratch.coded.column.copy(f, out_, padded_length(f.scale, rows)),
                 sites_.wgrad_gradient);
}

QuantisedCopy NativeProducts::wgrad_input_copy(const QuantPass& q, int64_t rows) const {
  const QuantFormat& f = formats_.wgrad_input.format;
  return of_site(q.scratch.coded.other.copy(f, in_, padded_length(f.scale, rows)),
                 sites_.wgrad_input);
}

void NativeProducts::dgrad(Exec on, const QuantPass& q, View<bf16, 2> dx,
                           View<const bf16, 2> add) const {
  scaled_linear<bf16>(on, {.y = dx,
                           .left = coded_gradient(q, dx.dim[0]),
                           .right = dgrad_weight_.matrix(formats_.dgrad_weight.format, in_, out_),
                           .add = add});
}

CodedMatrix NativeProducts::coded_gradient(const QuantPass& q, int64_t rows) const {
  return q.scratch.coded.row.matrix(formats_.dgrad_gradient.format, rows, out_);
}

CodedStack NativeProducts::fprop_stack() const {
  return {fprop_weight_.matrix(formats_.fprop_weight.format, experts_ * out_, in_), experts_,
          CodedStack::Experts::kAlongLines};
}

CodedStack NativeProducts::dgrad_stack() const {
  return {dgrad_weight_.matrix(formats_.dgrad_weight.format, in_, experts_ * out_), experts_,
          CodedStack::Experts::kAlongK};
}

std::string native_problem(const PrecisionTable& table, const ModelConfig& model,
                           int64_t sequence) {
  int64_t whole = 16;
  for (const ProductFormats& f : table.roles) {
    for (const OperandFormat* o : {&f.fprop_input, &f.fprop_weight, &f.dgrad_gradient,
                                   &f.dgrad_weight, &f.wgrad_gradient, &f.wgrad_input}) {
      if (o->quantised() && o->format.element == ElementFormat::kE2M1) whole = 32;
    }
  }
  if (sequence % whole != 0) {
    return strprintf("sequence length %ld is not a multiple of %ld", long(sequence), long(whole));
  }
  for (const int64_t width : dense_widths(model)) {
    if (width % whole == 0) continue;
    return strprintf("width %ld is not a multiple of %ld", long(width), long(whole));
  }
  return "";
}

ExpertWidths expert_widths(ProductRole role, const ModelConfig& model) {
  if (role != ProductRole::kExperts || !model.moe) return {};
  return {model.hidden, model.moe->expert_ffn};
}

std::vector<std::string> native_rows(const PrecisionTable& table, const ModelConfig& model,
                                     int capability) {
  std::vector<std::string> rows;
  for (int r = 0; r < kProductRoles; ++r) {
    const ProductRole role = ProductRole(r);
    const ProductFormats formats = laid_out(table.of(role));
    if (!formats.any() || !has_role(model, role)) continue;
    const std::string done = native_row(formats, expert_widths(role, model), capability);
    rows.push_back(strprintf("%-14s %s", product_role_name(role), done.c_str()));
  }
  return rows;
}

bool has_native_product(const PrecisionTable& table, const ModelConfig& model, int capability) {
  for (int r = 0; r < kProductRoles; ++r) {
    const ProductRole role = ProductRole(r);
    if (!has_role(model, role)) continue;
    const ProductFormats formats = laid_out(table.of(role));
    for (const NamedProduct& p : products_of(formats)) {
      if (!p.quantised()) continue;
      const ExpertWidths experts = expert_widths(role, model);
      if (product_problem(p.a, p.b, p.sum, experts, capability).empty()) return true;
    }
  }
  return false;
}

std::vector<std::string> native_recipes(int capability) {
  ModelConfig model;
  model.moe.emplace();
  model.hidden = model.moe->expert_ffn = 128;  // a multiple of every block
  std::vector<std::string> recipes;
  for (const char* recipe : {"fp8_tensor", "fp8_block", "mxfp8", "nvfp4"}) {
    PrecisionConfig precision;
    precision.recipe = recipe;
    const PrecisionTable table = precision_table(precision, model);
    std::string native;
    for (const auto& [role, name] : {std::pair{ProductRole::kAttention, "dense layers"},
                                     {ProductRole::kExperts, "experts' fprop and dgrad"}}) {
      const ProductFormats f = laid_out(table.of(role));
      if (product_problem(f.fprop_input, f.fprop_weight, Sum::kOverFeatures,
                          expert_widths(role, model), capability)
              .empty()) {
        native += (native.empty() ? "" : ", ") + std::string(name);
      }
    }
    if (!native.empty()) recipes.push_back(std::string(recipe) + " (" + native + ")");
  }
  return recipes;
}

}  // namespace assay
