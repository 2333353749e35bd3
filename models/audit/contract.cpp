#include "models/audit/contract.h"

#include <filesystem>

#include "base/check.h"
#include "engine/config/check.h"
#include "engine/config/yaml.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

Reference read_run_reference(const std::string& path) {
  const fs::path folder = require_run(path);
  Reference r{.name = path, .config = load_config((folder / "config.yaml").string())};
  const TelemetryReader telemetry((folder / "telemetry.db").string());
  r.steps = telemetry.steps_done();
  const std::string end = telemetry.end();
  if (end != "steps" && end != "target_loss") {
    throw UserError(
        strprintf("contract.reference: the run %s is not finished (step %ld of %ld)", path.c_str(),
                  long(r.steps), long(r.config.run.steps)),
        "train it to its end, or give its configuration " + (folder / "config.yaml").string());
  }
  if (const auto last = telemetry.last_scalar("train_s")) r.seconds = last->value;
  r.audit = audit(r.config);
  r.tokens = r.steps * r.config.run.batch_tokens;
  return r;
}

std::string derivation(ContractKind kind, const Reference& r, SharedExperts shared) {
  std::string rule = strprintf("%ld steps", long(r.steps));
  if (is_tokens_per_parameter(kind)) {
    rule = strprintf("%ld tokens / %ld %s parameters", long(r.tokens),
                     long(contract_parameters(kind, r.audit, shared)),
                     kind == ContractKind::kActiveDN ? "active" : "total");
  } else if (kind == ContractKind::kFlops) {
    rule = strprintf("%ld tokens * %ld FLOPs", long(r.tokens), long(r.audit.flops_per_token));
  } else if (kind == ContractKind::kSeconds) {
    rule = "seconds of training";
  } else if (kind == ContractKind::kActiveWidth) {
    rule =
        strprintf("active FFN width %ld, %ld steps", long(r.audit.ffn_active_width), long(r.steps));
  }
  return r.name + ": " + rule;
}

}  // namespace

Reference reference_of(const std::string& name, const Config& config) {
  Reference r{.name = name, .config = config, .audit = audit(config)};
  if (!horizon_is_known(config)) {
    const bool measured = config.contract.reference.empty();
    throw UserError(name + ": its own contract " + name_of(config.contract.kind) + " needs a " +
                        (measured ? "measurement" : "reference"),
                    std::string(measured ? "give its contract.step_seconds, the seconds of a step"
                                         : "give the reference that it names") +
                        ", or a run of this configuration");
  }
  r.steps = planned_steps(config);
  if (__builtin_mul_overflow(r.steps, config.run.batch_tokens, &r.tokens)) {
    throw UserError(name + ": the number of tokens does not fit 63 bits",
                    "make its run.steps or run.batch_tokens smaller");
  }
  return r;
}

Reference read_reference(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw UserError("contract.reference: there is no " + path,
                    "give a configuration file or the directory of a run; a path in a "
                    "configuration is relative to its file");
  }
  if (fs::is_directory(path, ignored)) return read_run_reference(path);
  return reference_of(path, load_config(path));
}

double reference_coefficient(ContractKind kind, const Reference& r, SharedExperts shared) {
  if (is_tokens_per_parameter(kind)) {
    return double(r.tokens) / double(contract_parameters(kind, r.audit, shared));
  }
  if (kind == ContractKind::kFlops) return double(r.tokens) * double(r.audit.flops_per_token);
  if (kind == ContractKind::kActiveWidth) return double(r.audit.ffn_active_width);
  CHECK(kind == ContractKind::kSeconds, "no coefficient of kind %s", name_of(kind));
  if (!r.seconds) {
    throw UserError("contract.reference: " + r.name + " has no seconds of training",
                    "give the directory of a run, or contract.coefficient in seconds");
  }
  return *r.seconds;
}

void resolve_reference(Config& config) {
  ContractConfig& c = config.contract;
  if (c.reference.empty()) return;
  const Reference r = read_reference(c.reference);
  const SharedExperts shared = shared_experts(c);
  if (c.kind != ContractKind::kSteps) c.coefficient = reference_coefficient(c.kind, r, shared);
  if (takes_run_steps(c.kind)) config.run.steps = r.steps;
  c.derived_from = derivation(c.kind, r, shared);
  c.reference.clear();
}

double given_step_seconds(const ContractConfig& contract) {
  const bool measured = contract.derived_from.find(kMeasuredStepSeconds) != std::string::npos;
  return contract.kind == ContractKind::kSeconds && !measured ? contract.step_seconds : 0;
}

void resolve_steps(Config& config) {
  ContractConfig& c = config.contract;
  if (c.landings || c.kind != ContractKind::kSteps) c.landings = landing_fractions(c);
  const int64_t full = horizon(config);
  config.run.steps = planned_steps(config);
  if (takes_run_steps(c.kind)) c.horizon = config.run.steps == full ? 0 : full;
  validate_schedule(config);
}

}  // namespace assay
