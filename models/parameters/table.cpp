#include "models/parameters/table.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace assay {

namespace {

constexpr double kInputStd = 0.02;

// Projections that write to the residual stream add less variance with depth.
double output_std(int64_t layer) {
  return kInputStd / std::sqrt(2.0 * static_cast<double>(layer + 1));
}

// Larger values are typing mistakes, and products of two would overflow.
void check_size(const char* field, int64_t value, int64_t largest) {
  if (value > largest)
    throw UserError(strprintf("model.%s is %ld, the largest possible is %ld", field,
                              static_cast<long>(value), static_cast<long>(largest)),
                    strprintf("make model.%s smaller", field));
}

void check_sizes(const ModelConfig& c) {
  constexpr int64_t kWidth = int64_t{1} << 30, kLayers = int64_t{1} << 16;
  check_size("layers", c.layers, kLayers);
  check_size("hidden", c.hidden, kWidth);
  check_size("heads", c.heads, kWidth);
  check_size("kv_heads", c.kv_heads, kWidth);
  check_size("head_dim", c.head_dim, kWidth);
  check_size("ffn", c.ffn, kWidth);
  check_size("vocab_size", c.vocab_size, kWidth);
  if (!c.moe) return;
  check_size("moe.experts", c.moe->experts, kWidth);
  check_size("moe.shared", c.moe->shared, kWidth);
  check_size("moe.expert_ffn", c.moe->expert_ffn, kWidth);
}

void append(std::vector<ParameterSpec>& table, std::vector<ParameterSpec> more) {
  for (ParameterSpec& spec : more) table.push_back(std::move(spec));
}

std::vector<ParameterSpec> attention_table(const ModelConfig& c, const std::string& at,
                                           int64_t layer) {
  const int64_t width = c.resolved_head_dim();
  const int64_t heads = c.heads, kv_heads = c.resolved_kv_heads();
  const int64_t qkv = (heads + 2 * kv_heads) * width;
  const double out = output_std(layer);

  std::vector<ParameterSpec> table = {
      {at + "attn.norm", {c.hidden}, Role::kNorm, ParameterGroup::kNoDecay, Init::kOne, 0},
      {at + "attn.qkv",
       {qkv, c.hidden},
       Role::kAttention,
       ParameterGroup::kDecay,
       Init::kNormal,
       kInputStd,
       {heads * width, kv_heads * width, kv_heads * width}},
  };
  if (c.qk_norm)
    append(table,
           {
               {at + "attn.q_norm", {width}, Role::kNorm, ParameterGroup::kNoDecay, Init::kOne, 0},
               {at + "attn.k_norm", {width}, Role::kNorm, ParameterGroup::kNoDecay, Init::kOne, 0},
           });
  append(table,
         {
             {at + "attn.out",
              {c.hidden, heads * width},
              Role::kAttention,
              ParameterGroup::kDecay,
              Init::kNormal,
              out},
             {at + "ffn.norm", {c.hidden}, Role::kNorm, ParameterGroup::kNoDecay, Init::kOne, 0},
         });
  return table;
}

std::vector<ParameterSpec> dense_table(const ModelConfig& c, const std::string& at, int64_t layer) {
  const double out = output_std(layer);
  const Role role = Role::kDenseFfn;
  return {
      {at + "ffn.gate_up",
       {2 * c.ffn, c.hidden},
       role,
       ParameterGroup::kDecay,
       Init::kNormal,
       kInputStd,
       {c.ffn, c.ffn}},
      {at + "ffn.down", {c.hidden, c.ffn}, role, ParameterGroup::kDecay, Init::kNormal, out},
  };
}

std::vector<ParameterSpec> moe_table(const ModelConfig& c, const std::string& at, int64_t layer) {
  const MoeConfig& m = *c.moe;
  const int64_t experts = m.experts, width = m.expert_ffn, shared = m.shared * m.expert_ffn;
  const double out = output_std(layer);
  const double in = c.init == InitRule::kNmoe ? out : kInputStd;
  const Role routed = Role::kRoutedExpert, both = Role::kSharedExpert;
  const Init normal = Init::kNormal;

  std::vector<ParameterSpec> table = {
      {at + "moe.router", {experts, c.hidden}, Role::kRouter, ParameterGroup::kRouter, normal, in},
      {at + "moe.bias", {experts}, Role::kBuffer, ParameterGroup::kNoDecay, Init::kZero, 0},
      {at + "moe.gate_up",
       {experts, 2 * width, c.hidden},
       routed,
       ParameterGroup::kExperts,
       normal,
       in,
       {width, width}},
      {at + "moe.down", {experts, c.hidden, width}, routed, ParameterGroup::kExperts, normal, out},
  };
  if (m.shared > 0)
    append(
        table,
        {
            {at + "moe.shared.gate_up",
             {2 * shared, c.hidden},
             both,
             ParameterGroup::kDecay,
             normal,
             kInputStd,
             {shared, shared}},
            {at + "moe.shared.down", {c.hidden, shared}, both, ParameterGroup::kDecay, normal, out},
        });
  return table;
}

}  // namespace

bool has_constant_gates(const MoeConfig& moe) {
  return moe.top_k == 1 && moe.experts > 1 && moe.router.normalize_gates;
}

bool has_working_aux(const MoeConfig& moe) {
  const RouterConfig& router = moe.router;
  if (router.aux == RouterAux::kNone || router.aux_alpha == 0) return false;
  return router.aux != RouterAux::kGates || moe.top_k > 1;
}

std::vector<ParameterSpec> parameter_table(const ModelConfig& c) {
  check_sizes(c);
  std::vector<ParameterSpec> table = {{"embed.weight",
                                       {c.vocab_size, c.hidden},
                                       Role::kEmbedding,
                                       ParameterGroup::kNoDecay,
                                       Init::kNormal,
                                       kInputStd}};
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = "blocks." + std::to_string(l) + ".";
    append(table, attention_table(c, at, l));
    append(table, is_moe_block(c, l) ? moe_table(c, at, l) : dense_table(c, at, l));
  }
  table.push_back({"final.norm", {c.hidden}, Role::kNorm, ParameterGroup::kNoDecay, Init::kOne, 0});
  if (!c.tie_embeddings)
    table.push_back({"head.weight",
                     {c.vocab_size, c.hidden},
                     Role::kHead,
                     ParameterGroup::kNoDecay,
                     Init::kNormal,
                     c.head_init / std::sqrt(static_cast<double>(c.hidden))});
  return table;
}

std::vector<ParameterSpec> parameter_table(const ModelConfig& c, const Layout& layout) {
  std::vector<ParameterSpec> table = parameter_table(c);
  if (layout.expert_ranks == 1) return table;
  for (ParameterSpec& spec : table) {
    if (spec.role != Role::kRoutedExpert) continue;
    CHECK(spec.shape[0] % layout.expert_ranks == 0, "%s: %ld experts on %d ranks",
          spec.name.c_str(), long(spec.shape[0]), layout.expert_ranks);
    spec.shape[0] /= layout.expert_ranks;
    spec.shares = layout.expert_ranks;
    spec.share = layout.expert_position();
  }
  return table;
}

void initialise(Exec on, const ParameterSpec& spec, uint64_t seed, View<float, 1> out) {
  CHECK(out.dim[0] == spec.size(), "initialise %s: got %ld elements, the table has %ld",
        spec.name.c_str(), static_cast<long>(out.dim[0]), static_cast<long>(spec.size()));
  if (spec.init != Init::kNormal) {
    std::fill_n(out.data, out.dim[0], spec.init == Init::kOne ? 1.0f : 0.0f);
    return;
  }
  const RandomKey key = {.seed = seed, .stream = stream_id(spec.name), .step = 0};
  const auto first = static_cast<uint64_t>(spec.first_element());
  parallel_ranges(on, out.dim[0], 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = static_cast<float>(spec.std * random_normal(key, first + static_cast<uint64_t>(i)));
  });
}

}  // namespace assay
