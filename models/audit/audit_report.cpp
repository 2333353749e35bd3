#include "models/audit/audit_report.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/memory_units.h"
#include "engine/telemetry/router_stats.h"
#include "models/audit/model_table.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

double ratio(int64_t tokens, int64_t parameters) {
  return static_cast<double>(tokens) / static_cast<double>(parameters);
}

std::vector<double> fractions_of(const Config& config, const AuditOptions& options) {
  if (!options.fractions.empty()) return options.fractions;
  return {config.contract.fraction < 1 ? config.contract.fraction : 0.2};
}

// None under a contract whose steps the run measures.
std::vector<int64_t> steps_of(const Config& config, const AuditOptions& options) {
  if (!options.steps.empty()) return options.steps;
  if (!horizon_is_known(config)) return {};
  return {planned_steps(config)};
}

// Tokens per parameter; 0 if the contract's coefficient has another unit (FLOPs, seconds, width).
double coefficient_of(const Config& config, const AuditOptions& options) {
  if (options.coefficient > 0) return options.coefficient;
  const ContractKind kind = config.contract.kind;
  return kind == ContractKind::kSteps || is_tokens_per_parameter(kind) ? config.contract.coefficient
                                                                       : 0;
}

int64_t tokens_of(const Config& config, int64_t steps) {
  int64_t tokens = 0;
  if (__builtin_mul_overflow(steps, config.run.batch_tokens, &tokens))
    throw UserError("the number of tokens does not fit 63 bits",
                    "make steps or run.batch_tokens smaller");
  return tokens;
}

// The largest possible values of the router measures.
Json ceilings(const MoeConfig& m) {
  const double experts = static_cast<double>(m.experts), chosen = static_cast<double>(m.top_k);
  Json json;
  json["cv_percent"] = rounded(100 * std::sqrt((experts - chosen) / chosen), 2);
  json["max_load"] = 1 / chosen;
  json["entropy_nats"] = std::log(experts);
  const double limit = saturation_limit(m.experts, m.top_k);
  json["saturation"] = std::isfinite(limit) ? Json(limit / chosen) : Json();
  return json;
}

Json parameters_json(const Audit& a) {
  const ParameterCounts& n = a.parameters;
  Json json;
  json["embedding_and_head"] = n.embedding + n.head;
  json["attention"] = n.attention;
  json["norms"] = n.norms;
  json["dense_ffn"] = n.dense_ffn;
  json["router"] = n.router;
  json["routed_experts"] = n.routed_experts;
  json["shared_experts"] = n.shared_experts;
  json["total"] = a.total;
  json["active"] = a.active;
  return json;
}

Json bytes_json(const Audit& a) {
  Json json;
  json["weights"] = a.weight_bytes;
  json["master"] = a.master_bytes;
  json["gradients"] = a.gradient_bytes;
  json["moments"] = a.moment_bytes;
  return json;
}

Json run_json(const Config& config) {
  Json json;
  json["contract"] = name_of(config.contract.kind);
  json["steps"] = nullptr;
  json["batch_tokens"] = config.run.batch_tokens;
  json["tokens"] = nullptr;
  if (!horizon_is_known(config)) return json;  // contract seconds: the run measures its step
  const int64_t steps = planned_steps(config);
  json["steps"] = steps;
  json["tokens"] = tokens_of(config, steps);
  return json;
}

Json model_json(const Config& config, const AuditOptions& options) {
  const ModelConfig& c = config.model;
  const bool sparse = moe_blocks(c) > 0;
  const Audit a = audit(config);
  Json json;
  json["config"]["first_dense_layers"] = c.layers - moe_blocks(c);
  if (sparse) {
    json["config"]["experts"] = c.moe->experts;
    json["config"]["top_k"] = c.moe->top_k;
    json["config"]["shared"] = c.moe->shared;
    json["config"]["expert_ffn"] = c.moe->expert_ffn;
  }
  json["params"] = parameters_json(a);
  json["ffn_active_width"] = a.ffn_active_width;

  const double coefficient = coefficient_of(config, options);
  for (const std::string& kind : options.contracts) {
    if (coefficient <= 0) break;
    const int64_t parameters =
        contract_parameters(*choice_named<ContractKind>(kind), a, shared_of(config, options));
    const int64_t full = horizon_steps(parameters, coefficient, config.run.batch_tokens);
    json[kind]["parameters"] = parameters;
    json[kind]["coefficient"] = coefficient;
    json[kind]["full_steps"] = full;
    for (const double f : fractions_of(config, options))
      json[kind][strprintf("%gpct_steps", 100 * f)] = fraction_of_steps(full, f);
    if (kind == "activeDN") json["activeDN_steps"] = full;
  }
  json["run"] = run_json(config);
  for (const int64_t steps : steps_of(config, options)) {
    const int64_t tokens = tokens_of(config, steps);
    const std::string at = strprintf("_at_%ld", static_cast<long>(steps));
    json["tokens_per_P_total" + at] = rounded(ratio(tokens, a.total), 4);
    json["tokens_per_P_active" + at] = rounded(ratio(tokens, a.active), 4);
    if (sparse)
      json["tokens_per_routed_expert"][strprintf("%ld_steps", static_cast<long>(steps))] =
          tokens_per_routed_expert(c, tokens);
  }
  if (sparse) json["ceilings"] = ceilings(*c.moe);
  json["flops_per_token"] = a.flops_per_token;
  json["bytes"] = bytes_json(a);
  return json;
}

std::string mebibytes(int64_t bytes) {
  return strprintf("%.1f", in_mib(bytes));
}

void fill_column(ModelTable& table, size_t column, const Config& config,
                 const AuditOptions& options) {
  const ModelConfig& c = config.model;
  const bool sparse = moe_blocks(c) > 0;
  const Audit a = audit(config);
  const ParameterCounts& n = a.parameters;
  const auto set = [&](const std::string& row, std::string value) {
    table.set(row, column, std::move(value));
  };
  const auto counted = [&](const std::string& row, int64_t value) { set(row, grouped(value)); };

  counted("P_total", a.total);
  counted("P_active", a.active);
  counted("  embedding", n.embedding);
  set("  head", n.head > 0 ? grouped(n.head) : "tied");
  counted("  attention", n.attention);
  counted("  norms", n.norms);
  counted("  dense ffn", n.dense_ffn);
  counted("  router", n.router);
  counted("  routed experts", n.routed_experts);
  counted("  shared experts", n.shared_experts);
  set("ffn active width", grouped(a.ffn_active_width));
  counted("FLOPs per token", a.flops_per_token);
  set("weights MiB", mebibytes(a.weight_bytes));
  set("master weights MiB", mebibytes(a.master_bytes));
  set("gradients MiB", mebibytes(a.gradient_bytes));
  set("moments MiB", mebibytes(a.moment_bytes));

  set("contract", name_of(config.contract.kind));
  std::vector<int64_t> at = options.steps;
  if (horizon_is_known(config)) {
    const int64_t planned = planned_steps(config);
    counted("steps of this run", planned);
    counted("tokens of this run", tokens_of(config, planned));
    if (at.empty()) at = {planned};
  }
  for (const int64_t steps : at) {
    const int64_t tokens = tokens_of(config, steps);
    const std::string suffix = options.steps.empty() ? "" : " at step " + grouped(steps);
    set("tokens / P_total" + suffix, strprintf("%.4f", ratio(tokens, a.total)));
    set("tokens / P_active" + suffix, strprintf("%.4f", ratio(tokens, a.active)));
    set("tokens per routed expert" + suffix,
        sparse ? grouped(tokens_per_routed_expert(c, tokens)) : "-");
  }
  const double coefficient = coefficient_of(config, options);
  for (const std::string& kind : options.contracts) {
    if (coefficient <= 0) break;
    const int64_t full = horizon_steps(
        contract_parameters(*choice_named<ContractKind>(kind), a, shared_of(config, options)),
        coefficient, config.run.batch_tokens);
    counted(strprintf("%s steps at %.6g", kind.c_str(), coefficient), full);
    for (const double f : fractions_of(config, options))
      counted(strprintf("%s steps, %g%%", kind.c_str(), 100 * f), fraction_of_steps(full, f));
  }
}

}  // namespace

SharedExperts shared_of(const Config& config, const AuditOptions& options) {
  return options.shared == SharedExperts::kLeftOut ? options.shared
                                                   : shared_experts(config.contract);
}

std::string audit_table(const std::vector<NamedConfig>& models, const AuditOptions& options) {
  std::vector<std::string> names;
  for (const NamedConfig& model : models) names.push_back(model.name);
  ModelTable table(names);
  for (size_t i = 0; i < models.size(); ++i) fill_column(table, i, models[i].config, options);
  return table.text();
}

Json audit_json(const std::vector<NamedConfig>& models, const AuditOptions& options) {
  Json json;
  json["models"] = Json::object();
  for (const NamedConfig& model : models)
    json["models"][model.name] = model_json(model.config, options);
  // The coefficient, if all models have the same one.
  if (!models.empty()) {
    const double gamma = coefficient_of(models[0].config, options);
    const bool shared = std::all_of(models.begin(), models.end(), [&](const NamedConfig& model) {
      return coefficient_of(model.config, options) == gamma;
    });
    if (shared && gamma > 0) json["gamma_tokens_per_parameter"] = gamma;
  }
  return json;
}

}  // namespace assay
