#include "models/linear/native_scratch.h"

#include <algorithm>

namespace assay {

void CodedBuffer::Room::reach(const QuantFormat& f, int64_t lines, int64_t k) {
  const QuantFormat format = hardware_format(f);
  codes = std::max(codes, lines * code_bytes(format.element, k));
  int64_t& count = has_float_scales(format.scale) ? scales : scale_codes;
  count = std::max(count, scale_count(format, lines, k));
}

void CodedBuffer::plan(MemoryPlan& plan, Section section, const std::string& name,
                       const Room& room) {
  plan.add(section, name + ".codes", codes, {room.codes});
  if (room.scales > 0) plan.add(section, name + ".scales", scales, {room.scales});
  if (room.scale_codes > 0)
    plan.add(section, name + ".scale_codes", scale_codes, {room.scale_codes});
  plan.add(section, name + ".scale", tensor_scale, {2});
}

QuantisedCopy CodedBuffer::copy(const QuantFormat& f, int64_t lines, int64_t k) const {
  QuantisedCopy copy{.codes = {codes.data, {lines, code_bytes(f.element, k)}}};
  const int64_t count = scale_count(f, lines, k);
  if (has_float_scales(f.scale)) copy.scales = scales.rows(0, count);
  if (has_byte_scales(f.scale)) copy.scale_codes = scale_codes.rows(0, count);
  if (has_tensor_scale(f.scale)) copy.tensor_scale = tensor_scale;
  return copy;
}

CodedMatrix CodedBuffer::matrix(const QuantFormat& f, int64_t lines, int64_t k) const {
  const QuantisedCopy of = copy(f, lines, k);
  return {.format = f,
          .codes = of.codes,
          .scales = of.scales,
          .scale_codes = of.scale_codes,
          .tensor_scale = of.tensor_scale};
}

QuantFormat hardware_format(QuantFormat format) {
  format.layout = ScaleLayout::kHardware;
  return format;
}

namespace {

// Row copies of the experts' x, h, dy and dgate_up. x has N <= A rows.
void reach_experts(CodedBuffer::Room& room, const ModelConfig& c, int64_t tokens) {
  const int64_t assignments = tokens * c.moe->top_k, ffn = c.moe->expert_ffn;
  const QuantFormat format{ElementFormat::kE4M3, ScaleKind::k1x128};
  for (const int64_t width : {c.hidden, ffn, 2 * ffn}) room.reach(format, assignments, width);
}

}  // namespace

std::vector<int64_t> dense_widths(const ModelConfig& c) {
  const int64_t head = c.resolved_head_dim();
  std::vector<int64_t> widths{c.hidden, c.heads * head,
                              (c.heads + 2 * c.resolved_kv_heads()) * head};
  const auto ffn = [&](int64_t width) { widths.insert(widths.end(), {width, 2 * width}); };
  if (moe_blocks(c) < c.layers) ffn(c.ffn);
  if (moe_blocks(c) > 0 && c.moe->shared > 0) ffn(c.moe->shared * c.moe->expert_ffn);
  return widths;
}

void NativeScratch::plan(MemoryPlan& plan, const ModelConfig& c, int64_t tokens) {
  CodedBuffer::Room room;
  for (const int64_t width : dense_widths(c)) {
    for (const ScaleKind kind : {ScaleKind::k1x128, ScaleKind::k1x32, ScaleKind::k1x16}) {
      const QuantFormat format{ElementFormat::kE4M3, kind};
      if (width % block_shape(kind).columns == 0) room.reach(format, tokens, width);
      room.reach(format, width, padded_length(kind, tokens));
    }
  }
  CodedBuffer::Room branch;
  branch.reach({ElementFormat::kE4M3, ScaleKind::k1x128}, c.hidden,
               padded_length(ScaleKind::k1x128, tokens));
  kept.plan(plan, Section::kScratch, "coded.kept", branch);
  CodedBuffer::Room rows = room;
  if (moe_blocks(c) > 0) reach_experts(rows, c, tokens);
  row.plan(plan, Section::kScratch, "coded.row", rows);
  column.plan(plan, Section::kScratch, "coded.column", room);
  other.plan(plan, Section::kScratch, "coded.other", room);
}

}  // namespace assay
