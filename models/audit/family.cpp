#include "models/audit/family.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "data/shard.h"
#include "engine/config/check.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// The contract's coefficient from the reference; nullopt if unknown.
std::optional<double> coefficient_of(ContractKind kind, const Reference& reference,
                                     const AuditOptions& options) {
  if (kind == ContractKind::kSteps) return 0;
  if (is_tokens_per_parameter(kind) && options.coefficient > 0) return options.coefficient;
  if (kind == ContractKind::kSeconds) {
    const double step = reference.config.contract.step_seconds;
    if (step > 0) return step * double(reference.steps);
    return std::nullopt;
  }
  return reference_coefficient(kind, reference, shared_of(reference.config, options));
}

std::optional<int64_t> steps_under(ContractKind kind, double coefficient,
                                   const Reference& reference, Config config,
                                   SharedExperts shared) {
  ContractConfig& c = config.contract;
  const Audit a = audit(config);
  if (kind == ContractKind::kActiveWidth && double(a.ffn_active_width) != coefficient)
    return std::nullopt;
  if (kind == ContractKind::kSeconds && c.step_seconds == 0) return std::nullopt;
  if (takes_run_steps(kind)) config.run.steps = reference.steps;
  const double step_seconds = c.step_seconds;
  c = {};
  c.kind = kind;
  c.coefficient = coefficient;
  c.step_seconds = step_seconds;
  c.shared_in_total = shared == SharedExperts::kInTotal;
  return horizon(config, a);
}

std::string coefficient_text(const FamilyHorizon& h) {
  const ContractKind kind = h.kind;
  if (kind == ContractKind::kSteps) return "";
  const char* unit = is_tokens_per_parameter(kind)    ? "tokens per parameter"
                     : kind == ContractKind::kFlops   ? "FLOPs"
                     : kind == ContractKind::kSeconds ? "s"
                                                      : "wide";
  return strprintf(" (%.6g %s)%s", h.coefficient, unit,
                   h.shared == SharedExperts::kLeftOut ? ", shared experts left out" : "");
}

double horizon_tokens(const Config& config, int64_t steps) {
  return double(steps) * double(config.run.batch_tokens);
}

}  // namespace

std::optional<double> steps_per_epoch(const Config& config) {
  // What does not end within a shard is left out: sequences, or in order whole batches.
  const int64_t piece = config.data.shuffle ? config.run.sequence : config.run.batch_tokens;
  const auto steps_of = [&](int64_t tokens) {
    return double((tokens - 1) / piece * piece) / double(config.run.batch_tokens);
  };
  if (config.data.synth) {  // about: it has at least that many tokens, in whole stories
    const double steps = steps_of(config.data.synth->train_tokens);
    return steps > 0 ? std::optional(steps) : std::nullopt;
  }
  if (config.data.mixture) return std::nullopt;  // each source has epochs of its own
  try {
    double steps = 0;
    for (const std::string& file : expand_files(config.data.train, "data.train")) {
      steps += steps_of(Shard(file).tokens());
    }
    if (steps > 0) return steps;
  } catch (const UserError&) {
  }
  return std::nullopt;
}

std::optional<int64_t> epoch_tokens(const Config& config) {
  const std::optional<double> steps = steps_per_epoch(config);
  if (!steps) return std::nullopt;
  return std::llround(*steps * double(config.run.batch_tokens));
}

std::vector<FamilyHorizon> family_horizons(const std::vector<NamedConfig>& models,
                                           const AuditOptions& options) {
  std::vector<FamilyHorizon> all;
  if (models.empty() || !horizon_is_known(models[0].config)) return all;
  const Reference reference = reference_of(models[0].name, models[0].config);
  std::vector<std::optional<double>> epoch;
  for (const NamedConfig& model : models) epoch.push_back(steps_per_epoch(model.config));
  for (const ContractKind kind : choices<ContractKind>()) {
    const std::optional<double> coefficient = coefficient_of(kind, reference, options);
    if (!coefficient) continue;
    FamilyHorizon h{.kind = kind, .coefficient = *coefficient};
    if (kind == ContractKind::kTotalDN) h.shared = shared_of(reference.config, options);
    for (size_t i = 0; i < models.size(); ++i) {
      const std::optional<int64_t> steps =
          steps_under(kind, *coefficient, reference, models[i].config, h.shared);
      h.steps.push_back(steps);
      h.epochs.push_back(steps && epoch[i] && *epoch[i] > 0
                             ? std::optional(double(*steps) / *epoch[i])
                             : std::nullopt);
    }
    all.push_back(h);
  }
  return all;
}

std::string family_table(const std::vector<NamedConfig>& models, const AuditOptions& options) {
  const std::vector<FamilyHorizon> horizons = family_horizons(models, options);
  if (horizons.empty()) return "";
  std::vector<std::string> names;
  for (const NamedConfig& model : models) names.push_back(model.name);
  ModelTable table(names);
  for (const FamilyHorizon& h : horizons) {
    for (size_t i = 0; i < models.size(); ++i) {
      const Config& config = models[i].config;
      const Audit a = audit(config);
      const auto set = [&](const std::string& row, const std::string& value) {
        table.set(row, i, value);
      };
      const std::string head = name_of(h.kind) + coefficient_text(h);
      set(head, h.steps[i] ? grouped(*h.steps[i]) : "-");
      if (!h.steps[i]) continue;
      const double tokens = horizon_tokens(config, *h.steps[i]);
      const std::string of = std::string(", ") + name_of(h.kind);
      set("  tokens" + of, strprintf("%.4g", tokens));
      set("  tokens / P_total" + of, strprintf("%.2f", tokens / double(a.total)));
      set("  tokens / P_active" + of, strprintf("%.2f", tokens / double(a.active)));
      if (h.epochs[i]) set("  epochs" + of, strprintf("%.2f", *h.epochs[i]));
      for (const double f : options.fractions) {
        set(strprintf("  steps, %g%%%s", 100 * f, of.c_str()),
            *h.steps[i] > 0 ? grouped(fraction_of_steps(*h.steps[i], f)) : "0");
      }
    }
  }
  std::string text = "steps of every contract, with " + models[0].name + " as the reference\n";
  text += table.text();
  for (const Confound& c : confounds(models, horizons)) text += "confound: " + c.text + "\n";
  return text;
}

Json family_json(const std::vector<NamedConfig>& models, const AuditOptions& options) {
  const std::vector<FamilyHorizon> horizons = family_horizons(models, options);
  Json json;
  json["reference"] = models.empty() ? Json() : Json(models[0].name);
  json["contracts"] = Json::object();
  for (const FamilyHorizon& h : horizons) {
    Json& contract = json["contracts"][name_of(h.kind)];
    contract["coefficient"] = h.kind == ContractKind::kSteps ? Json() : Json(h.coefficient);
    if (h.kind == ContractKind::kTotalDN) {
      contract["shared_in_total"] = h.shared == SharedExperts::kInTotal;
    }
    for (size_t i = 0; i < models.size(); ++i) {
      Json& model = contract["models"][models[i].name];
      model["steps"] = h.steps[i] ? Json(*h.steps[i]) : Json();
      if (!h.steps[i]) continue;
      const Audit a = audit(models[i].config);
      const double tokens = horizon_tokens(models[i].config, *h.steps[i]);
      model["tokens"] = tokens;
      model["tokens_per_P_total"] = tokens / double(a.total);
      model["tokens_per_P_active"] = tokens / double(a.active);
      model["epochs"] = h.epochs[i] ? Json(*h.epochs[i]) : Json();
      for (const double f : options.fractions) {
        if (*h.steps[i] > 0)
          model[strprintf("%gpct_steps", 100 * f)] = fraction_of_steps(*h.steps[i], f);
      }
    }
  }
  json["confounds"] = confounds_json(confounds(models, horizons));
  return json;
}

Json confounds_json(const std::vector<Confound>& found) {
  Json json = Json::array();
  for (const Confound& c : found) {
    Json confound;
    confound["name"] = c.name;
    confound["text"] = c.text;
    json.push_back(confound);
  }
  return json;
}

}  // namespace assay
