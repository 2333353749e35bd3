// The rules of lab/receipt/run_claims.h, one function each.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "engine/telemetry/router_stats.h"
#include "lab/receipt/run_claims.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/run_record.h"
#include "lab/runs/time_to_target.h"
#include "models/audit/horizon.h"

namespace assay {

void refuse_rule(const ReceiptJson& how, const std::string& what) {
  throw UserError(what + " in the rule " + how.dump(), "docs/receipts.md lists the rules");
}

namespace {

namespace fs = std::filesystem;
using Json = ReceiptJson;

int64_t rule_integer(const Json& how, const char* key) {
  if (!how.contains(key) || !how[key].is_number_integer())
    refuse_rule(how, std::string("no ") + key);
  return how[key].get<int64_t>();
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json last_of(const auto& values) {
  return values.empty() ? Json() : number_or_null(values.back().value);
}

Json audit_rule(RunEvidence& run, const Json& how) {
  const Audit& a = run.audit();
  const ParameterCounts& n = a.parameters;
  const std::pair<const char*, int64_t> fields[] = {{"total", a.total},
                                                    {"active", a.active},
                                                    {"embedding", n.embedding},
                                                    {"head", n.head},
                                                    {"norms", n.norms},
                                                    {"attention", n.attention},
                                                    {"dense_ffn", n.dense_ffn},
                                                    {"router", n.router},
                                                    {"routed_experts", n.routed_experts},
                                                    {"routed_active", n.routed_active},
                                                    {"shared_experts", n.shared_experts},
                                                    {"ffn_active_width", a.ffn_active_width},
                                                    {"flops_per_token", a.flops_per_token}};
  const std::string field = rule_text(how, "field");
  for (const auto& [name, value] : fields) {
    if (field == name) return value;
  }
  refuse_rule(how, "no field " + field);
}

Json planned_steps_rule(RunEvidence& run, const Json&) {
  return run.config().run.steps;
}

Json horizon_rule(RunEvidence& run, const Json& how) {
  if (!horizon_is_known(run.config())) refuse_rule(how, "no horizon in the configuration");
  return horizon(run.config(), run.audit());
}

Json steps_done_rule(RunEvidence& run, const Json&) {
  return run.steps_done();
}

Json tokens_rule(RunEvidence& run, const Json&) {
  return run.tokens();
}

Json tokens_per_parameter_rule(RunEvidence& run, const Json& how) {
  return double(run.tokens()) / audit_rule(run, how).get<double>();
}

Json tokens_per_routed_expert_rule(RunEvidence& run, const Json&) {
  return tokens_per_routed_expert(run.config().model, run.tokens());
}

double flops_of(RunEvidence& run, int64_t tokens) {
  return double(run.audit().flops_per_token) * double(tokens);
}

Json train_flops_rule(RunEvidence& run, const Json&) {
  return flops_of(run, run.tokens());
}

Json scalar_rule(RunEvidence& run, const Json& how) {
  return last_of(run.scalar(rule_text(how, "name")));
}

Json eval_rule(RunEvidence& run, const Json& how) {
  const std::vector<EvalValue> values = run.eval(rule_text(how, "task"), rule_text(how, "metric"));
  const std::string pick = rule_text(how, "pick");
  if (pick == "last") return last_of(values);
  if (pick == "at") {
    for (const EvalValue& v : values) {
      if (v.step == rule_integer(how, "step")) return number_or_null(v.value);
    }
    return Json();
  }
  if (pick != "best" && pick != "best_step") refuse_rule(how, "no pick " + pick);
  const auto best =
      std::min_element(values.begin(), values.end(), [](const EvalValue& a, const EvalValue& b) {
        return std::isfinite(a.value) && !(b.value <= a.value);  // NaN and inf come last
      });
  if (best == values.end()) return Json();
  return pick == "best" ? number_or_null(best->value) : Json(best->step);
}

// What a run had spent after a step.
Json spent_at(RunEvidence& run, int64_t step, const std::string& in) {
  if (in == "step") return step;
  const int64_t tokens = step * run.config().run.batch_tokens;
  if (in == "tokens") return tokens;
  if (in == "flops") return flops_of(run, tokens);
  Json seconds;
  for (const StepValue& s : run.scalar("train_s")) {
    if (s.step <= step) seconds = number_or_null(s.value);
  }
  return seconds;
}

// The steps of the crossing and of the validation before it (0 without one); nullopt if there is no
// crossing.
struct CrossingSteps {
  int64_t at = 0, before = 0;
};
std::optional<CrossingSteps> crossing_steps(RunEvidence& run, const Json& how) {
  if (!how.contains("loss_nats") || !how["loss_nats"].is_number()) refuse_rule(how, "no loss_nats");
  const double loss = how["loss_nats"].get<double>();
  std::set<int64_t> left_out;
  if (how.contains("except")) {
    if (!how["except"].is_array()) refuse_rule(how, "no list of steps in except");
    for (const Json& step : how["except"]) {
      if (!step.is_number_integer()) refuse_rule(how, "no step in except");
      left_out.insert(step.get<int64_t>());
    }
  }
  int64_t before = 0;
  for (const EvalValue& v : run.eval("val", "loss_nats")) {
    if (v.step == 0) continue;  // before training
    if (left_out.contains(v.step) && v.step != run.steps_done()) continue;
    if (v.value <= loss) return CrossingSteps{.at = v.step, .before = before};
    before = v.step;
  }
  return std::nullopt;
}

Json first_at_or_below_rule(RunEvidence& run, const Json& how) {
  const auto crossing = crossing_steps(run, how);
  const std::string in = rule_text(how, "in");
  if (in != "step" && in != "tokens" && in != "seconds" && in != "flops")
    refuse_rule(how, "no " + in);
  return crossing ? spent_at(run, crossing->at, in) : Json();
}

Json router_rule(RunEvidence& run, const Json& how) {
  const std::string measure = rule_text(how, "measure");
  const auto& moe = run.config().model.moe;
  const double limit = saturation_limit(moe ? moe->experts : 0, moe ? moe->top_k : 0);
  const std::optional<int64_t> layer =
      how.contains("layer") ? std::optional(rule_integer(how, "layer")) : std::nullopt;
  if (measure == "saturated_at_step") {
    if (!layer) refuse_rule(how, "no layer");
    for (const StepValue& v : run.telemetry().router_over_time("max_load_norm", *layer)) {
      if (v.step <= run.step() && v.value >= limit) return v.step;
    }
    return Json();
  }
  const char* column = measure == "dead_share" ? "window_active_norm" : "window_max_load_norm";
  std::vector<LayerValue> values = run.telemetry().router(column, run.last_logged());
  if (layer) std::erase_if(values, [&](const LayerValue& l) { return l.layer != *layer; });
  if (values.empty()) return Json();
  double worst = 0, dead = 0;
  int64_t saturated_layers = 0;
  for (const LayerValue& l : values) {
    worst = std::max(worst, l.value);
    dead += 1 - l.value;
    if (l.value >= limit) ++saturated_layers;
  }
  if (measure == "max_load_norm") return worst;
  if (measure == "dead_share") return dead / double(values.size());
  if (measure == "saturated_layers") return saturated_layers;
  refuse_rule(how, "no measure " + measure);
}

const RunMeasure& measure_of(const Json& how) {
  const std::string name = rule_text(how, "name");
  const RunMeasure* measure = find_run_measure(name);
  if (measure == nullptr) refuse_rule(how, "no measure " + name);
  return *measure;
}

// Of finished runs: a measure reads the whole record.
RunRecord whole_record(RunEvidence& run) {
  run.config();  // a file that is missing is not available, one that is damaged is drift
  run.telemetry();
  const RunRecord record = read_run(run.folder());
  if (record.steps_done != run.steps_done()) {
    throw NotAvailable("the run went on after its receipt");
  }
  return record;
}

// A value at a share by the rule before kShareRule: of the evaluation nearest to it, if that is
// within 2.5% of the steps.
std::optional<double> nearest_to_share(const RunRecord& run, const std::vector<EvalValue>& values,
                                       double share) {
  constexpr double kNearest = 0.025;
  const double steps = double(run.config.run.steps);
  const auto distance = [&](const EvalValue& v) {
    return std::abs(double(v.step) - share * steps);
  };
  const EvalValue* nearest = nullptr;
  for (const EvalValue& v : values) {
    if (v.step == 0) continue;  // the weights as they were drawn
    if (nearest == nullptr || distance(v) < distance(*nearest)) nearest = &v;
  }
  if (nearest == nullptr || distance(*nearest) > kNearest * steps) return std::nullopt;
  return finite_value(*nearest);
}

std::optional<double> value_at_share_rule(const RunRecord& run, const RunMeasure& measure,
                                          const Json& how) {
  if (measure.at == nullptr || !how["share"].is_number()) refuse_rule(how, "no share");
  const double share = how["share"].get<double>();
  if (!how.contains("version")) {
    const bool bits = measure.name == std::string("bits_per_byte");
    return nearest_to_share(run, bits ? run.val_bits_per_byte : run.val_loss_nats, share);
  }
  if (how["version"] != kShareRule) {
    refuse_rule(how, "a version that this program does not know");
  }
  return measure.at(run, share);
}

Json measure_rule(RunEvidence& run, const Json& how) {
  const RunMeasure& measure = measure_of(how);
  const RunRecord record = whole_record(run);
  const std::optional<double> value =
      how.contains("share") ? value_at_share_rule(record, measure, how) : measure.of(record);
  return value ? number_or_null(*value) : Json();
}

struct Rule {
  const char* name;
  Json (*value)(RunEvidence& run, const Json& how);
};

constexpr Rule kRules[] = {
    {"audit", audit_rule},
    {"planned_steps", planned_steps_rule},
    {"horizon", horizon_rule},
    {"steps_done", steps_done_rule},
    {"tokens", tokens_rule},
    {"tokens_per_parameter", tokens_per_parameter_rule},
    {"tokens_per_routed_expert", tokens_per_routed_expert_rule},
    {"train_flops", train_flops_rule},
    {"scalar", scalar_rule},
    {"eval", eval_rule},
    {"first_at_or_below", first_at_or_below_rule},
    {"router", router_rule},
    {"measure", measure_rule},
};

}  // namespace

std::string rule_text(const ReceiptJson& how, const char* key) {
  if (!how.contains(key) || !how[key].is_string()) refuse_rule(how, std::string("no ") + key);
  return how[key].get<std::string>();
}

ReceiptJson recompute(RunEvidence& run, const ReceiptJson& how) {
  const std::string name = rule_text(how, "rule");
  for (const Rule& rule : kRules) {
    if (name == rule.name) return rule.value(run, how);
  }
  refuse_rule(how, "unknown name " + name);
}

double resolution_of_rule(RunEvidence& run, const ReceiptJson& how) {
  const std::string name = rule_text(how, "rule");
  if (name == "measure") {
    const RunMeasure& measure = measure_of(how);
    if (measure.resolution == nullptr || how.contains("share")) return 0;
    return measure.resolution(whole_record(run)).value_or(0);
  }
  if (name != "first_at_or_below") return 0;
  const auto crossing = crossing_steps(run, how);
  if (!crossing) return 0;
  const std::string in = rule_text(how, "in");
  const Json at = spent_at(run, crossing->at, in), before = spent_at(run, crossing->before, in);
  if (at.is_null()) return 0;
  return at.get<double>() - (before.is_null() ? 0 : before.get<double>());
}

bool stopped_at_target(RunEvidence& run) {
  return stopped_at_target(run.config(), run.steps_done(), run.eval("val", "loss_nats"));
}

RunEvidence::RunEvidence(std::string folder, std::optional<int64_t> step)
    : folder_(std::move(folder)), step_(step) {}

std::string RunEvidence::require(const char* file) const {
  const fs::path path = fs::path(folder_) / file;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) throw NotAvailable("no " + path.string());
  return path.string();
}

const Config& RunEvidence::config() {
  if (!config_) config_ = load_config(require("config.yaml"));
  return *config_;
}

const Audit& RunEvidence::audit() {
  if (!audit_) audit_ = assay::audit(config());
  return *audit_;
}

const TelemetryReader& RunEvidence::telemetry() {
  if (!telemetry_) telemetry_ = std::make_unique<TelemetryReader>(require("telemetry.db"));
  return *telemetry_;
}

int64_t RunEvidence::step() {
  if (!step_) step_ = recorded_steps(telemetry(), config().run.steps, folder_);
  return *step_;
}

int64_t RunEvidence::steps_done() {
  return telemetry().steps_done(step());
}

int64_t RunEvidence::last_logged() {
  const std::vector<StepValue> logged = scalar("train_loss_nats");
  return logged.empty() ? 0 : logged.back().step;
}

int64_t RunEvidence::tokens() {
  int64_t tokens = 0;
  if (__builtin_mul_overflow(steps_done(), config().run.batch_tokens, &tokens)) {
    throw UserError("the number of tokens does not fit 63 bits",
                    "the run's telemetry or run.batch_tokens is damaged");
  }
  return tokens;
}

std::vector<StepValue> RunEvidence::scalar(const std::string& name) {
  std::vector<StepValue> values = telemetry().scalar(name);
  std::erase_if(values, [&](const StepValue& v) { return v.step > step(); });
  return values;
}

std::vector<EvalValue> RunEvidence::eval(const std::string& task, const std::string& metric) {
  std::vector<EvalValue> values = telemetry().eval(task, metric);
  std::erase_if(values, [&](const EvalValue& v) { return v.step > step(); });
  return values;
}

}  // namespace assay
