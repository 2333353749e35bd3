#include "engine/config/spelling.h"

#include <tuple>

namespace assay {
namespace {

// What the optimizer makes of a field that may be absent.
double router_lr(const OptimizerConfig& c) {
  return c.router_lr.value_or(c.lr);
}
double expert_lr(const OptimizerConfig& c) {
  return c.expert_lr.value_or(c.lr);
}
double expert_beta2(const OptimizerConfig& c) {
  return c.expert_beta2.value_or(c.beta2);
}
// Muon's section with its learning rates of dense matrices and of experts.
std::tuple<double, double, double, bool, int64_t, double, MuonAdjust> muon(
    const OptimizerConfig& c) {
  const MuonConfig m = c.muon.value_or(MuonConfig{});
  return {m.lr.value_or(c.lr),
          m.lr.value_or(expert_lr(c)),
          m.momentum,
          m.nesterov,
          m.steps,
          m.weight_decay.value_or(c.weight_decay),
          m.adjust};
}

bool same_in_optimizer(const std::string& path, const OptimizerConfig& then,
                       const OptimizerConfig& now) {
  if (path == "optimizer.router_lr") return router_lr(then) == router_lr(now);
  if (path == "optimizer.expert_lr") return expert_lr(then) == expert_lr(now);
  if (path == "optimizer.expert_beta2") return expert_beta2(then) == expert_beta2(now);
  const bool of_muon = path == "optimizer.muon" || path.starts_with("optimizer.muon.");
  return of_muon && muon(then) == muon(now);
}

bool same_in_router(const std::string& path, const RouterConfig& then, const RouterConfig& now) {
  if (path == "model.moe.router.bias_rule")
    return then.resolved_bias_rule() == now.resolved_bias_rule();
  return path == "model.moe.router.bias_steps" &&
         then.resolved_bias_steps() == now.resolved_bias_steps();
}

}  // namespace

bool means_the_same(const std::string& path, const Config& before, const Config& now) {
  if (path.starts_with("optimizer.")) {
    return same_in_optimizer(path, before.optimizer, now.optimizer);
  }
  if (path.starts_with("model.moe.router.")) {
    return same_in_router(path, before.model.moe->router, now.model.moe->router);
  }
  const ModelConfig &then = before.model, &model = now.model;
  if (path == "model.kv_heads") return then.resolved_kv_heads() == model.resolved_kv_heads();
  if (path == "model.head_dim") return then.resolved_head_dim() == model.resolved_head_dim();
  if (path == "model.ffn") return !then.has_dense_block() && !model.has_dense_block();
  // 0 leaves the run's own; runs before there were parts have one.
  return path == "parallel.parts" &&
         (now.parallel.parts == 0 || now.parallel.batch_parts() == before.parallel.batch_parts());
}

void keep_spelling(const Config& begun, Config& now) {
  const Config given = now;
  const auto keep = [&](const char* path, auto& field, const auto& of_begun) {
    if (!means_the_same(path, begun, given)) return;
    const auto written = field;
    field = of_begun;
    // Beside other fields that differ (which are refused later) it could mean something else.
    if (!means_the_same(path, given, now)) field = written;
  };
  keep("model.kv_heads", now.model.kv_heads, begun.model.kv_heads);
  keep("model.head_dim", now.model.head_dim, begun.model.head_dim);
  keep("model.ffn", now.model.ffn, begun.model.ffn);
  keep("optimizer.router_lr", now.optimizer.router_lr, begun.optimizer.router_lr);
  keep("optimizer.expert_lr", now.optimizer.expert_lr, begun.optimizer.expert_lr);
  keep("optimizer.expert_beta2", now.optimizer.expert_beta2, begun.optimizer.expert_beta2);
  keep("optimizer.muon", now.optimizer.muon, begun.optimizer.muon);
  if (!begun.model.moe || !now.model.moe) return;
  RouterConfig& router = now.model.moe->router;
  const RouterConfig& then = begun.model.moe->router;
  keep("model.moe.router.bias_rule", router.bias_rule, then.bias_rule);
  keep("model.moe.router.bias_steps", router.bias_steps, then.bias_steps);
}

}  // namespace assay
