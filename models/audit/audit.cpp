#include "models/audit/audit.h"

#include <limits>

#include "base/check.h"
#include "engine/config/check.h"
#include "models/decoder/decoder.h"
#include "models/parameters/table.h"

namespace assay {

namespace {

using Wide = __int128;

int64_t narrow(Wide value, const char* what) {
  if (value > std::numeric_limits<int64_t>::max())
    throw UserError(strprintf("%s: too large for 63 bits", what),
                    "make the model or the run smaller");
  return static_cast<int64_t>(value);
}

}  // namespace

int64_t ParameterCounts::total() const {
  return narrow(Wide(embedding) + head + norms + attention + dense_ffn + router + routed_experts +
                    shared_experts,
                "the number of parameters");
}

ParameterCounts count_from_table(const ModelConfig& config) {
  ParameterCounts n;
  for (const ParameterSpec& spec : parameter_table(config)) {
    const auto add = [&](int64_t& to) { to = narrow(Wide(to) + spec.size(), spec.name.c_str()); };
    switch (spec.role) {
      case Role::kEmbedding:
        add(n.embedding);
        break;
      case Role::kHead:
        add(n.head);
        break;
      case Role::kNorm:
        add(n.norms);
        break;
      case Role::kAttention:
        add(n.attention);
        break;
      case Role::kDenseFfn:
        add(n.dense_ffn);
        break;
      case Role::kRouter:
        add(n.router);
        break;
      case Role::kRoutedExpert:
        add(n.routed_experts);
        break;
      case Role::kSharedExpert:
        add(n.shared_experts);
        break;
      case Role::kBuffer:
        break;
    }
  }
  if (n.routed_experts > 0)
    n.routed_active = n.routed_experts / config.moe->experts * config.moe->top_k;
  return n;
}

ParameterCounts count_from_formula(const ModelConfig& c) {
  const Wide width = c.hidden, layers = c.layers, moe = moe_blocks(c), dense = layers - moe;
  const Wide q = Wide(c.heads) * c.resolved_head_dim();
  const Wide kv = Wide(c.resolved_kv_heads()) * c.resolved_head_dim();
  const Wide matrix = Wide(c.vocab_size) * width;
  const Wide norms =
      (2 * layers + 1) * width + (c.qk_norm ? 2 * layers * c.resolved_head_dim() : 0);

  ParameterCounts n;
  n.embedding = narrow(matrix, "the embedding");
  n.head = c.tie_embeddings ? 0 : n.embedding;
  n.norms = narrow(norms, "the number of norm weights");
  n.attention = narrow(layers * 2 * width * (q + kv), "the attention");
  n.dense_ffn = narrow(dense * 3 * width * c.ffn, "the dense FFN");
  if (moe == 0) return n;
  const Wide expert = 3 * width * c.moe->expert_ffn;
  n.router = narrow(moe * width * c.moe->experts, "the router");
  n.routed_experts = narrow(moe * c.moe->experts * expert, "the routed experts");
  n.routed_active = narrow(moe * c.moe->top_k * expert, "the routed experts");
  n.shared_experts = narrow(moe * c.moe->shared * expert, "the shared experts");
  return n;
}

int64_t flops_per_token(const Config& config, const ParameterCounts& n) {
  const ModelConfig& c = config.model;
  const Wide head = Wide(c.vocab_size) * c.hidden;  // counts when tied, too
  const Wide matrices = Wide(n.active()) - n.embedding - n.head - n.norms + head;
  const Wide attention = Wide(c.layers) * c.heads * c.resolved_head_dim() * config.run.sequence;
  return narrow(6 * (matrices + attention), "the FLOPs per token");
}

Audit audit(const Config& config) {
  const ModelConfig& c = config.model;
  validate(config);
  const ParameterCounts n = count_from_table(c);
  CHECK(n == count_from_formula(c),
        "the parameter table has %ld parameters (%ld active), the formula gives %ld (%ld)",
        static_cast<long>(n.total()), static_cast<long>(n.active()),
        static_cast<long>(count_from_formula(c).total()),
        static_cast<long>(count_from_formula(c).active()));

  Audit a;
  a.parameters = n;
  a.total = n.total();
  a.active = n.active();
  a.ffn_active_width =
      moe_blocks(c) > 0 ? (c.moe->top_k + c.moe->shared) * c.moe->expert_ffn : c.ffn;
  a.flops_per_token = flops_per_token(config, n);

  const bool bf16 = resolve_recipe(config.precision.recipe) == Recipe::kBf16;
  a.gradient_bytes = narrow(Wide(a.total) * 4, "the bytes of the gradients");
  if (config.optimizer.state == StateFormat::kBf16) {
    const Wide matrices = Wide(a.total) - n.norms;
    a.weight_bytes = narrow(matrices * 2, "the bytes of the weights");
    a.master_bytes = narrow(Wide(n.norms) * 4, "the bytes of the master weights");
    a.moment_bytes = narrow(matrices * 4 + Wide(n.norms) * 8, "the bytes of the moments");
    return a;
  }
  // Norms are read from their masters.
  a.weight_bytes =
      narrow(bf16 ? Wide(a.total - n.norms) * 2 : Wide(a.total) * 4, "the bytes of the weights");
  a.master_bytes = narrow(Wide(a.total) * (bf16 ? 4 : 0), "the bytes of the master weights");
  Wide moments = Wide(a.total) * 8;
  if (config.optimizer.kind == OptimizerKind::kMuon) {
    moments -= 4 * (Wide(n.attention) + n.dense_ffn + n.routed_experts + n.shared_experts);
  }
  a.moment_bytes = narrow(moments, "the bytes of the moments");
  return a;
}

int64_t tokens_per_routed_expert(const ModelConfig& config, int64_t tokens) {
  if (moe_blocks(config) == 0) return 0;
  return narrow(Wide(tokens) * config.moe->top_k / config.moe->experts, "tokens per expert");
}

}  // namespace assay
