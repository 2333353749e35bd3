#include "lab/receipt/run_claims.h"

#include "models/audit/horizon.h"

namespace assay {
namespace {

using Json = ReceiptJson;

Json how_rule(const char* rule) {
  Json how;
  how["rule"] = rule;
  return how;
}

// True if the contract itself determines a number of steps; run.steps may be a fraction of it.
bool has_horizon(const Config& config) {
  return !takes_run_steps(config.contract.kind) && horizon_is_known(config);
}

Json how_layer(const std::string& measure, int64_t layer) {
  Json how = how_router(measure);
  how["layer"] = layer;
  return how;
}

}  // namespace

ReceiptJson how_eval(const std::string& task, const std::string& metric, const std::string& pick) {
  Json how = how_rule("eval");
  how["task"] = task;
  how["metric"] = metric;
  how["pick"] = pick;
  return how;
}

ReceiptJson how_first_at_or_below(double loss_nats, const std::string& in,
                                  const std::set<int64_t>& left_out) {
  Json how = how_rule("first_at_or_below");
  how["loss_nats"] = loss_nats;
  how["in"] = in;
  if (!left_out.empty()) how["except"] = left_out;
  return how;
}

ReceiptJson how_scalar(const std::string& name) {
  Json how = how_rule("scalar");
  how["name"] = name;
  return how;
}

ReceiptJson how_router(const std::string& measure) {
  Json how = how_rule("router");
  how["measure"] = measure;
  return how;
}

ReceiptJson how_audit(const std::string& field) {
  Json how = how_rule("audit");
  how["field"] = field;
  return how;
}

ReceiptJson how_measure(const std::string& name, std::optional<double> share) {
  Json how = how_rule("measure");
  how["name"] = name;
  if (!share) return how;
  how["share"] = *share;
  how["version"] = kShareRule;
  return how;
}

std::vector<ClaimSpec> config_claims(RunEvidence& run) {
  std::vector<ClaimSpec> claims;
  const auto audited = [&](const std::string& name, const char* field, const char* unit) {
    claims.push_back({.name = name, .unit = unit, .how = how_audit(field)});
  };
  for (const char* field :
       {"total", "active", "embedding", "head", "norms", "attention", "dense_ffn", "router",
        "routed_experts", "routed_active", "shared_experts"}) {
    if (recompute(run, how_audit(field)) != 0)
      audited(std::string("parameters_") + field, field, "parameters");
  }
  audited("ffn_active_width", "ffn_active_width", "columns");
  audited("flops_per_token", "flops_per_token", "FLOPs");
  claims.push_back({.name = "planned_steps", .unit = "steps", .how = how_rule("planned_steps")});
  if (has_horizon(run.config()))
    claims.push_back({.name = "horizon_steps", .unit = "steps", .how = how_rule("horizon")});
  return claims;
}

std::vector<ClaimSpec> telemetry_claims(RunEvidence& run) {
  const Config& config = run.config();
  std::vector<ClaimSpec> claims;
  const auto add = [&](const std::string& name, const char* unit, const Json& how) {
    claims.push_back({.name = name, .unit = unit, .how = how});
  };
  add("steps_done", "steps", how_rule("steps_done"));
  add("tokens", "tokens", how_rule("tokens"));
  for (const char* field : {"total", "active"}) {
    Json how = how_rule("tokens_per_parameter");
    how["field"] = field;
    add(std::string("tokens_per_parameter_") + field, "tokens/parameter", how);
  }
  add("train_flops", "FLOPs", how_rule("train_flops"));
  if (!run.scalar("train_loss_nats").empty())
    add("train_loss_final", "nats", how_scalar("train_loss_nats"));
  if (!run.scalar("train_s").empty()) add("train_seconds", "s", how_scalar("train_s"));
  for (const char* joules : {"cpu_joules", "gpu_joules"}) {
    if (!run.scalar(joules).empty()) add(std::string("train_") + joules, "J", how_scalar(joules));
  }

  if (!run.eval("val", "loss_nats").empty()) {
    add("val_loss_final", "nats", how_eval("val", "loss_nats", "last"));
    add("val_loss_best", "nats", how_eval("val", "loss_nats", "best"));
    add("val_loss_best_step", "step", how_eval("val", "loss_nats", "best_step"));
    if (config.run.target_loss > 0) {
      add("target_loss_step", "step", how_first_at_or_below(config.run.target_loss, "step"));
      if (!run.scalar("train_s").empty())
        add("target_loss_seconds", "s", how_first_at_or_below(config.run.target_loss, "seconds"));
    }
  }
  for (const auto& [task, metric] : run.telemetry().eval_names()) {
    if ((task == "val" && metric == "loss_nats") || run.eval(task, metric).empty()) continue;
    const char* unit = metric == "bits_per_byte" ? "bits/byte" : metric.c_str();
    add(task + "_" + metric + "_final", unit, how_eval(task, metric, "last"));
  }

  if (moe_blocks(config.model) == 0 || run.last_logged() == 0) return claims;
  add("tokens_per_routed_expert", "tokens", how_rule("tokens_per_routed_expert"));
  add("router_max_load_norm_worst", "K*max_load", how_router("max_load_norm"));
  add("router_saturated_layers", "layers", how_router("saturated_layers"));
  add("router_dead_share", "share", how_router("dead_share"));
  for (const LayerValue& l : run.telemetry().router("window_max_load_norm", run.last_logged())) {
    const std::string layer = "layer_" + std::to_string(l.layer);
    add(layer + "_max_load_norm", "K*max_load", how_layer("max_load_norm", l.layer));
    add(layer + "_saturated_at_step", "step", how_layer("saturated_at_step", l.layer));
    add(layer + "_dead_share", "share", how_layer("dead_share", l.layer));
  }
  return claims;
}

}  // namespace assay
