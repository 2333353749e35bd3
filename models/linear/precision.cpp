#include "models/linear/precision.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "base/joined.h"

namespace assay {

namespace {

struct NamedFormat {
  const char* name;
  QuantFormat format;
};
// fp32 block scales are powers of two, so that decoded values are exact in bf16
// (docs/decisions/0008).
constexpr NamedFormat kFormats[] = {
    {"fp8_e4m3", {.element = ElementFormat::kE4M3, .scale = ScaleKind::kTensor}},
    {"fp8_e5m2", {.element = ElementFormat::kE5M2, .scale = ScaleKind::kTensor}},
    {"fp8_1x128",
     {.element = ElementFormat::kE4M3,
      .scale = ScaleKind::k1x128,
      .scale_rounding = ScaleRounding::kPowerOfTwo}},
    {"fp8_128x128",
     {.element = ElementFormat::kE4M3,
      .scale = ScaleKind::k128x128,
      .scale_rounding = ScaleRounding::kPowerOfTwo}},
    {"mxfp8", {.element = ElementFormat::kE4M3, .scale = ScaleKind::k1x32}},
    {"mxfp4", {.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x32}},
    {"nvfp4", {.element = ElementFormat::kE2M1, .scale = ScaleKind::k1x16}},
    {"nvfp4_2d", {.element = ElementFormat::kE2M1, .scale = ScaleKind::k16x16}},
};

constexpr const char* kRoleNames[] = {"attention", "dense_ffn", "experts", "shared_experts"};
constexpr const char* kProductNames[] = {"fprop", "dgrad", "wgrad"};
constexpr const char* kOperandNames[] = {"input", "weight", "gradient"};

std::string format_names() {
  std::string text = "bf16";
  for (const NamedFormat& f : kFormats) text += std::string(", ") + f.name;
  return text + "; +sr rounds stochastically, +rht rotates both operands of wgrad";
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

std::optional<size_t> position(const auto& names, const std::string& name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return size_t(found - std::begin(names));
}

OperandFormat parse_format(const std::string& text, const std::string& where) {
  const std::vector<std::string> parts = split(text, '+');
  OperandFormat parsed;
  const auto known =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [&](const NamedFormat& f) { return !parts.empty() && parts[0] == f.name; });
  if (known != std::end(kFormats)) {
    parsed = {.kind = OperandFormat::Kind::kQuantised, .format = known->format};
  } else if (parts.empty() || parts[0] != "bf16") {
    throw UserError(where + ": no format '" + text + "'", "formats: " + format_names());
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    const bool stochastic = parts[i] == "sr", rotated = parts[i] == "rht";
    if ((!stochastic && !rotated) || !parsed.quantised()) {
      throw UserError(where + ": no format '" + text + "'", "formats: " + format_names());
    }
    if (stochastic) parsed.format.rounding = Rounding::kStochastic;
    if (rotated) parsed.rotated = true;
  }
  return parsed;
}

// The operands that an override names; an absent part matches all.
struct Pattern {
  std::optional<size_t> role, product, operand;
};

OperandFormat* operand_of(ProductFormats& formats, Product product, Operand operand) {
  switch (product) {
    case Product::kFprop:
      return operand == Operand::kInput    ? &formats.fprop_input
             : operand == Operand::kWeight ? &formats.fprop_weight
                                           : nullptr;
    case Product::kDgrad:
      return operand == Operand::kGradient ? &formats.dgrad_gradient
             : operand == Operand::kWeight ? &formats.dgrad_weight
                                           : nullptr;
    case Product::kWgrad:
      return operand == Operand::kGradient ? &formats.wgrad_gradient
             : operand == Operand::kInput  ? &formats.wgrad_input
                                           : nullptr;
  }
  return nullptr;
}

// Returns the number of operands set.
int apply(PrecisionTable& table, const Pattern& pattern, const OperandFormat& format) {
  int set = 0;
  for (size_t r = 0; r < size_t(kProductRoles); ++r) {
    if (pattern.role.value_or(r) != r) continue;
    for (size_t p = 0; p < 3; ++p) {
      if (pattern.product.value_or(p) != p) continue;
      for (size_t o = 0; o < 3; ++o) {
        if (pattern.operand.value_or(o) != o) continue;
        OperandFormat* at = operand_of(table.roles[r], Product(p), Operand(o));
        if (at == nullptr) continue;
        *at = format;
        set += 1;
      }
    }
  }
  return set;
}

Pattern parse_pattern(const std::string& text, const std::string& where) {
  Pattern pattern;
  for (const std::string& part : split(text, '.')) {
    const auto role = position(kRoleNames, part), product = position(kProductNames, part);
    const auto operand = position(kOperandNames, part);
    if (role && !pattern.role) {
      pattern.role = role;
    } else if (product && !pattern.product) {
      pattern.product = product;
    } else if (operand && !pattern.operand) {
      pattern.operand = operand;
    } else if (part == "head" || part == "router" || part == "embedding" || part == "norms") {
      throw UserError(where + ": the " + part + " is not quantised by any recipe",
                      "roles: " + joined(kRoleNames, ", "));
    } else {
      throw UserError(where + ": no role, product or operand '" + part + "'",
                      "roles: " + joined(kRoleNames, ", ") +
                          "; products: " + joined(kProductNames, ", ") +
                          "; operands: " + joined(kOperandNames, ", "));
    }
  }
  return pattern;
}

void apply_line(PrecisionTable& table, const std::string& line, const std::string& where) {
  const size_t equals = line.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UserError(where + " is not ROLE.PRODUCT.OPERAND=FORMAT",
                    "e.g. experts.wgrad=bf16, weight=mxfp8, wgrad.gradient=nvfp4+sr+rht");
  }
  const Pattern pattern = parse_pattern(line.substr(0, equals), where);
  if (apply(table, pattern, parse_format(line.substr(equals + 1), where)) == 0) {
    throw UserError(
        where + " names no operand of any product",
        "fprop has input and weight, dgrad gradient and weight, wgrad gradient and input");
  }
}

// The published recipes, as lines of precision.override over bf16. docs/precision.md gives the
// sources.
struct RecipeFormats {
  std::vector<std::string> lines;
  int64_t bf16_last_percent = 0;  // of the layers, rounded up, which stay in bf16
};
const std::map<std::string, RecipeFormats, std::less<>>& recipes() {
  static const std::map<std::string, RecipeFormats, std::less<>> table = {
      {"fp8_tensor", {{"input=fp8_e4m3", "weight=fp8_e4m3", "gradient=fp8_e5m2"}}},
      {"fp8_block", {{"input=fp8_1x128", "weight=fp8_128x128", "gradient=fp8_1x128"}}},
      {"mxfp8", {{"input=mxfp8", "weight=mxfp8", "gradient=mxfp8"}}},
      // The published recipe keeps about 16% of the linear layers in bf16, most of them last.
      {"nvfp4",
       {{"fprop.input=nvfp4", "weight=nvfp4_2d", "dgrad.gradient=nvfp4+sr",
         "wgrad.gradient=nvfp4+sr+rht", "wgrad.input=nvfp4+rht"},
        15}},
      {"mxfp8_nmoe", {{"experts.fprop=mxfp8"}}},
      {"mxfp4_nmoe", {{"experts.fprop=mxfp4"}}},
  };
  return table;
}

void require_sense(const PrecisionTable& table) {
  for (size_t r = 0; r < size_t(kProductRoles); ++r) {
    const ProductFormats& f = table.roles[r];
    const std::string role = kRoleNames[r];
    if (f.wgrad_gradient.rotated != f.wgrad_input.rotated) {
      throw UserError("precision: " + role + ".wgrad: only one operand is rotated (+rht)",
                      "the rotation cancels between the two: rotate both or none");
    }
    for (const OperandFormat* o : {&f.fprop_weight, &f.dgrad_weight}) {
      if (!o->quantised() || o->format.rounding == Rounding::kNearest) continue;
      throw UserError(
          "precision: +sr on the weight of " + role,
          "weights round to nearest: a resumed run could not repeat their random draws");
    }
    for (const OperandFormat* o :
         {&f.fprop_input, &f.fprop_weight, &f.dgrad_gradient, &f.dgrad_weight}) {
      if (!o->rotated) continue;
      throw UserError("precision: +rht on a product of " + role + " that is not wgrad",
                      "the rotation runs along tokens, which only wgrad sums over");
    }
  }
}

// False for blocks of one line: the values then depend on the axis that the blocks run along.
bool same_along_both_axes(ScaleKind kind) {
  return kind == ScaleKind::kTensor || kind == ScaleKind::k128x128 || kind == ScaleKind::k16x16;
}

struct Width {
  const char* name;
  int64_t value;
};

void require_blocks(const std::string& where, const OperandFormat& f, const Width& width) {
  if (!f.quantised()) return;
  const int64_t block = block_shape(f.format.scale).columns;
  if (width.value % block == 0) return;
  throw UserError(strprintf("%s in %s needs blocks of %ld along %s = %ld", where.c_str(),
                            format_name(f).c_str(), long(block), width.name, long(width.value)),
                  strprintf("make it a multiple of %ld, or keep that product in bf16: "
                            "precision.override: [%s=bf16]",
                            long(block), where.c_str()));
}

// One linear layer: y = x W^T sums over `in`, dx = dy W over `out`.
void require_layer(ProductRole role, const ProductFormats& f, const Width& in, const Width& out) {
  const std::string name = kRoleNames[size_t(role)];
  require_blocks(name + ".fprop", f.fprop_input, in);
  require_blocks(name + ".fprop", f.fprop_weight, in);
  require_blocks(name + ".dgrad", f.dgrad_gradient, out);
  require_blocks(name + ".dgrad", f.dgrad_weight, out);
}

}  // namespace

bool has_role(const ModelConfig& m, ProductRole role) {
  const bool moe = moe_blocks(m) > 0;
  switch (role) {
    case ProductRole::kAttention:
      return true;
    case ProductRole::kDenseFfn:
      return m.has_dense_block();
    case ProductRole::kExperts:
      return moe;
    case ProductRole::kSharedExperts:
      return moe && m.moe->shared > 0;
  }
  return false;
}

std::string format_name(const OperandFormat& format) {
  if (!format.quantised()) return "bf16";
  for (const NamedFormat& f : kFormats) {
    if (f.format.element != format.format.element || f.format.scale != format.format.scale)
      continue;
    return std::string(f.name) + (format.format.rounding == Rounding::kStochastic ? "+sr" : "") +
           (format.rotated ? "+rht" : "");
  }
  return "?";
}

const char* product_role_name(ProductRole role) {
  return kRoleNames[size_t(role)];
}

bool ProductFormats::one_weight() const {
  if (!(fprop_weight == dgrad_weight)) return false;
  return !fprop_weight.quantised() || same_along_both_axes(fprop_weight.format.scale);
}

bool PrecisionTable::any() const {
  return std::any_of(roles.begin(), roles.end(), [](const ProductFormats& f) { return f.any(); });
}

bool is_quantised_recipe(std::string_view recipe) {
  return recipes().count(recipe) > 0;
}

std::string quantised_recipe_names() {
  std::string names;
  for (const auto& [name, lines] : recipes()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

PrecisionTable precision_table(const PrecisionConfig& config, const ModelConfig& model) {
  PrecisionTable table;
  const auto recipe = recipes().find(config.recipe);
  if (recipe != recipes().end()) {
    for (const std::string& line : recipe->second.lines) {
      apply_line(table, line, "recipe " + config.recipe + ": '" + line + "'");
    }
  }
  for (const std::string& line : config.override_) {
    apply_line(table, line, "precision.override '" + line + "'");
  }
  if (table.any() && config.recipe == "fp32") {
    throw UserError("precision.override with recipe fp32",
                    "overrides apply to bf16 products: choose recipe bf16");
  }
  require_sense(table);
  const int64_t percent = recipe != recipes().end() ? recipe->second.bf16_last_percent : 0;
  const int64_t usual = (percent * model.layers + 99) / 100;
  table.bf16_first_layers = std::max<int64_t>(config.bf16_first_layers, 0);
  table.bf16_last_layers = config.bf16_last_layers < 0 ? usual : config.bf16_last_layers;
  return table;
}

// Of an operand whose rows are tokens.
static bool takes_rows_together(const OperandFormat& f) {
  return f.quantised() &&
         (has_tensor_scale(f.format.scale) || block_shape(f.format.scale).lines > 1 ||
          f.format.rounding == Rounding::kStochastic);
}

bool rows_have_own_scales(const PrecisionTable& table) {
  return std::none_of(table.roles.begin(), table.roles.end(),
                      [](const ProductFormats& f) { return takes_rows_together(f.fprop_input); });
}

std::vector<std::string> idle_overrides(const PrecisionConfig& config, const ModelConfig& model) {
  std::vector<std::string> idle;
  for (const std::string& line : config.override_) {
    const std::string named = line.substr(0, line.find('='));
    const Pattern pattern = parse_pattern(named, "precision.override '" + line + "'");
    if (pattern.role && !has_role(model, ProductRole(*pattern.role))) idle.push_back(line);
  }
  return idle;
}

ProductFormats formats_of(const PrecisionTable& table, ProductRole role, int64_t layer,
                          int64_t layers) {
  if (layer < table.bf16_first_layers || layer >= layers - table.bf16_last_layers) return {};
  return table.of(role);
}

// The formats of a role; none if all of its blocks are among those kept in bf16.
static ProductFormats formats_in_use(const PrecisionTable& table, ProductRole role,
                                     const ModelConfig& m) {
  const int64_t dense = m.layers - moe_blocks(m);
  const bool experts = role == ProductRole::kExperts || role == ProductRole::kSharedExperts;
  const int64_t begin = std::max(table.bf16_first_layers, experts ? dense : 0);
  const int64_t end = std::min(m.layers - table.bf16_last_layers,
                               role == ProductRole::kDenseFfn ? dense : m.layers);
  return begin < end ? table.of(role) : ProductFormats{};
}

bool rows_train_apart(const PrecisionTable& table, const ModelConfig& m) {
  for (size_t r = 0; r < size_t(kProductRoles); ++r) {
    if (!has_role(m, ProductRole(r))) continue;
    const ProductFormats f = formats_in_use(table, ProductRole(r), m);
    for (const OperandFormat* o :
         {&f.fprop_input, &f.dgrad_gradient, &f.wgrad_gradient, &f.wgrad_input}) {
      if (takes_rows_together(*o)) return false;
    }
  }
  return true;
}

void require_whole_blocks(const PrecisionTable& table, const ModelConfig& m) {
  const Width hidden{"model.hidden", m.hidden};
  const int64_t head = m.resolved_head_dim();
  const Width heads{"model.heads x head_dim", m.heads * head};
  const Width qkv{"the width of q, k and v", (m.heads + 2 * m.resolved_kv_heads()) * head};
  const ProductFormats attention = formats_in_use(table, ProductRole::kAttention, m);
  require_layer(ProductRole::kAttention, attention, hidden, qkv);
  require_layer(ProductRole::kAttention, attention, heads, hidden);
  const auto require_ffn = [&](ProductRole role, const char* name, int64_t width) {
    const ProductFormats formats = formats_in_use(table, role, m);
    require_layer(role, formats, hidden, {name, width});
    require_layer(role, formats, {name, width}, hidden);
  };
  if (has_role(m, ProductRole::kDenseFfn)) {
    require_ffn(ProductRole::kDenseFfn, "model.ffn", m.ffn);
  }
  if (has_role(m, ProductRole::kExperts)) {
    require_ffn(ProductRole::kExperts, "model.moe.expert_ffn", m.moe->expert_ffn);
  }
  if (has_role(m, ProductRole::kSharedExperts)) {
    require_ffn(ProductRole::kSharedExperts, "model.moe.shared x expert_ffn",
                m.moe->shared * m.moe->expert_ffn);
  }
}

std::string precision_text(const PrecisionConfig& config) {
  std::string text = config.recipe;
  for (size_t i = 0; i < config.override_.size(); ++i) {
    text += (i == 0 ? " with " : ", ") + config.override_[i];
  }
  if (config.bf16_first_layers > 0) {
    text += strprintf(", first %ld blocks in bf16", long(config.bf16_first_layers));
  }
  if (config.bf16_last_layers >= 0) {
    text += strprintf(", last %ld blocks in bf16", long(config.bf16_last_layers));
  }
  if (config.bf16_tail > 0)
    text += strprintf(", last %g%% of the steps in bf16", 100 * config.bf16_tail);
  if (config.products == ProductsMode::kNative) text += ", products in their own formats";
  return text;
}

std::vector<std::string> precision_rows(const PrecisionTable& table, const ModelConfig& model) {
  std::vector<std::string> rows;
  for (size_t r = 0; r < size_t(kProductRoles); ++r) {
    const ProductFormats& f = table.roles[r];
    if (!f.any() || !has_role(model, ProductRole(r))) continue;
    const auto row = [&](const char* product, const char* first, const OperandFormat& a,
                         const char* second, const OperandFormat& b) {
      rows.push_back(strprintf("%-14s %s  %s %s, %s %s", kRoleNames[r], product, first,
                               format_name(a).c_str(), second, format_name(b).c_str()));
    };
    row("fprop", "input", f.fprop_input, "weight", f.fprop_weight);
    row("dgrad", "gradient", f.dgrad_gradient, "weight", f.dgrad_weight);
    row("wgrad", "gradient", f.wgrad_gradient, "input", f.wgrad_input);
  }
  return rows;
}

}  // namespace assay
