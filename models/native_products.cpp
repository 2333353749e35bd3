#include "models/native_products.h"

#include "base/check.h"
#include "models/quantised_products.h"
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

bool native_pair(const OperandFormat& a, const OperandFormat& b, int capability) {
  return a.quantised() && b.quantised() &&
         scaled_linear_problem(a.format, b.format, capability).empty();
}

// "attention": which of its products are native, and why the others are not.
std::string native_row(const ProductFormats& f, int capability) {
  struct Product {
    const char* name;
    const OperandFormat &a, &b;
  };
  const Product products[] = {
      {"fprop", f.fprop_input,    f.fprop_weight},
      {"dgrad", f.dgrad_gradient, f.dgrad_weight},
      {"wgrad", f.wgrad_gradient, f.wgrad_input }
  };
  std::string native, why;
  for (const Product& p : products) {
    if (native_pair(p.a, p.b, capability)) {
      native += (native.empty() ? "" : ", ") + std::string(p.name);
    } else if (p.a.quantised() && p.b.quantised()) {
      why = scaled_linear_problem(p.a.format, p.b.format, capability);
    } else if (why.empty() && (p.a.quantised() || p.b.quantised())) {
      why = "one operand is in bf16";
    }
  }
  if (native.empty()) return "decoded to bf16: " + why;
  return native + " in their own formats" + (why.empty() ? "" : ", the others decoded: " + why);
}

// The wish for a copy along the rows or the columns of a matrix.
struct Wanted {
  const CodedBuffer* to = nullptr;  // null: no such copy
  OperandFormat format = {};
  uint64_t stream = 0;
};

// Both copies of x from one read where their formats are one; a tensor's scale needs a read before.
template <typename X>
void code(Exec on, const QuantScratch& q, View<const X, 2> x, const Wanted& row,
          const Wanted& column) {
  if (row.to != nullptr && column.to != nullptr && !(row.format.format == column.format.format)) {
    code(on, q, x, row, {});
    return code(on, q, x, {}, column);
  }
  const OperandFormat& any = row.to != nullptr ? row.format : column.format;
  const bool rotated = column.to != nullptr && column.format.rotated;
  if (has_tensor_scale(any.format.scale)) {
    amax<X>(on, {.amax = q.amax.rows(0, 1),
                 .rotated = rotated ? q.amax.rows(1, 1) : View<float, 1>{},
                 .x = x,
                 .signs = kRotationSigns});
  }
  const auto copy_of = [&](const Wanted& w, int64_t lines, int64_t k, int64_t which) {
    if (w.to == nullptr) return QuantisedCopy{};
    QuantisedCopy copy = w.to->copy(w.format.format, lines, k);
    if (has_tensor_scale(w.format.format.scale)) copy.amax = q.amax.rows(which, 1);
    copy.key = {.seed = q.seed, .stream = w.stream, .step = 0};
    return copy;
  };
  const int64_t rows = x.dim[0], columns = x.dim[1];
  quantise<X>(on, {.row = copy_of(row, rows, columns, 0),
                   .column = copy_of(column, columns, padded_length(any.format.scale, rows),
                                     rotated ? 1 : 0),
                   .x = x,
                   .draw = q.draw,
                   .format = any.format,
                   .rotation = rotated ? ColumnRotation::kHadamard16 : ColumnRotation::kNone,
                   .signs = kRotationSigns});
}

// Forward products may leave their sums to the tensor cores where one scale stands for a tensor, as the published recipe
// does: a gradient's sums have more to lose.
CodedSums forward_sums(const OperandFormat& input) {
  return input.format.scale == ScaleKind::kTensor ? CodedSums::kFast : CodedSums::kPromoted;
}

}  // namespace

NativeProducts::NativeProducts(std::string weight, const ProductFormats& formats, int capability)
    : name_(std::move(weight)),
      formats_(laid_out(formats)),
      fprop_(native_pair(formats_.fprop_input, formats_.fprop_weight, capability)),
      dgrad_(native_pair(formats_.dgrad_gradient, formats_.dgrad_weight, capability)),
      wgrad_(native_pair(formats_.wgrad_gradient, formats_.wgrad_input, capability)),
      dgrad_stream_(stream_id(name_ + ".dgrad.gradient")),
      wgrad_stream_(stream_id(name_ + ".wgrad.gradient")),
      fprop_stream_(stream_id(name_ + ".fprop.input")),
      wgrad_input_stream_(stream_id(name_ + ".wgrad.input")) {}

void NativeProducts::plan(MemoryPlan& plan, int64_t out, int64_t in) {
  out_ = out;
  in_ = in;
  const auto add = [&](CodedBuffer& to, const char* name, const OperandFormat& format,
                       int64_t lines, int64_t k) {
    CodedBuffer::Room room;
    room.reach(format.format, lines, k);
    to.plan(plan, Section::kParameters, name_ + name, room);
  };
  if (fprop_) add(fprop_weight_, ".fprop", formats_.fprop_weight, out, in);
  if (dgrad_) add(dgrad_weight_, ".dgrad", formats_.dgrad_weight, in, out);
}

void NativeProducts::refresh_weights(Exec on, const QuantScratch& q,
                                     View<const float, 1> master) const {
  if (!fprop(q) && !dgrad(q)) return;
  const uint64_t stream = stream_id(name_);
  Wanted row{.format = formats_.fprop_weight, .stream = stream};
  Wanted column{.format = formats_.dgrad_weight, .stream = stream};
  if (fprop(q)) row.to = &fprop_weight_;
  if (dgrad(q)) column.to = &dgrad_weight_;
  code<float>(on, q,
              {
                  master.data, {out_, in_}
  },
              row, column);
}

void NativeProducts::forward(Exec on, const QuantScratch& q, View<const bf16, 2> x,
                             View<bf16, 2> y) const {
  const OperandFormat& input = formats_.fprop_input;
  code(on, q, x, {&q.coded.row, input, fprop_stream_}, {});
  scaled_linear<bf16>(on, {.y = y,
                           .left = q.coded.row.matrix(input.format, x.dim[0], in_),
                           .right = fprop_weight_.matrix(formats_.fprop_weight.format, out_, in_),
                           .sums = forward_sums(input)});
}

void NativeProducts::code_gradient(Exec on, const QuantScratch& q, View<const bf16, 2> dy) const {
  Wanted row{.format = formats_.dgrad_gradient, .stream = dgrad_stream_};
  Wanted column{.format = formats_.wgrad_gradient, .stream = wgrad_stream_};
  if (dgrad(q)) row.to = &q.coded.row;
  if (wgrad(q)) column.to = &q.coded.column;
  if (row.to != nullptr || column.to != nullptr) code(on, q, dy, row, column);
}

void NativeProducts::wgrad(Exec on, const QuantScratch& q, View<const bf16, 2> x,
                           View<float, 2> dweight) const {
  const OperandFormat &gradient = formats_.wgrad_gradient, &input = formats_.wgrad_input;
  code(on, q, x, {}, {&q.coded.other, input, wgrad_input_stream_});
  const auto k = [&](const OperandFormat& f) { return padded_length(f.format.scale, x.dim[0]); };
  scaled_linear<float>(on, {.y = dweight,
                            .left = q.coded.column.matrix(gradient.format, out_, k(gradient)),
                            .right = q.coded.other.matrix(input.format, in_, k(input)),
                            .add = dweight});
}

void NativeProducts::dgrad(Exec on, const QuantScratch& q, View<bf16, 2> dx,
                           View<const bf16, 2> add) const {
  scaled_linear<bf16>(on,
                      {.y = dx,
                       .left = q.coded.row.matrix(formats_.dgrad_gradient.format, dx.dim[0], out_),
                       .right = dgrad_weight_.matrix(formats_.dgrad_weight.format, in_, out_),
                       .add = add});
}

std::vector<std::string> native_rows(const PrecisionTable& table, const ModelConfig& model,
                                     int capability) {
  std::vector<std::string> rows;
  for (int r = 0; r < kProductRoles; ++r) {
    const ProductRole role = ProductRole(r);
    const ProductFormats formats = laid_out(table.of(role));
    if (!formats.any() || !has_role(model, role)) continue;
    const std::string done = role == ProductRole::kExperts
                                 ? "decoded to bf16: grouped products have no kernel of their own"
                                 : native_row(formats, capability);
    rows.push_back(strprintf("%-14s %s", product_role_name(role), done.c_str()));
  }
  return rows;
}

}  // namespace assay
