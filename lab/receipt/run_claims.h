// The claims of a run and the rules that recompute them from config.yaml and telemetry.db.
//
// A rule is a name with arguments, written into the receipt as `how`:
//
//   {"rule": "audit", "field": "total"}                  a count of models/audit/audit.h
//   {"rule": "planned_steps"}                            run.steps
//   {"rule": "horizon"}                                  steps of the whole contract
//                                                        (models/audit/horizon.h)
//   {"rule": "steps_done"}
//   {"rule": "tokens"}                                   steps_done * run.batch_tokens
//   {"rule": "tokens_per_parameter", "field": "active"}  tokens / a count
//   {"rule": "tokens_per_routed_expert"}                 tokens * K / E
//   {"rule": "train_flops"}                              FLOPs per token * tokens
//   {"rule": "scalar", "name": "train_s"}                its last value
//   {"rule": "eval", "task": "val", "metric": "loss_nats", "pick": "last"}
//                                                        or best, best_step, at (with "step")
//   {"rule": "first_at_or_below", "loss_nats": 3.28, "in": "step"}
//                                                        or tokens, seconds, flops; with "except"
//                                                        steps whose validation does not count
//   {"rule": "router", "measure": "max_load_norm", "layer": 3}
//                                                        or dead_share; without layer the worst
//                                                        and the mean. Also saturated_at_step
//                                                        (with layer) and saturated_layers
//                                                        (without)
//   {"rule": "measure", "name": "max_load"}              of lab/runs/run_measures.h; with "share"
//                                                        its value at that share of run.steps:
//                                                        with "version": 2 as
//                                                        lab/runs/value_at_share.h reads it, else
//                                                        of the evaluation nearest to it, if that
//                                                        is within 2.5% of the steps
//
// Everything is taken up to the sealed step. A value is a number, or null for an event that did not
// happen.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "lab/receipt/receipt.h"
#include "models/audit/audit.h"

namespace assay {

// An artifact is missing, so the claim can be neither confirmed nor refuted.
struct NotAvailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The files from which the claims of one run are recomputed, each read on first use. Throws
// NotAvailable for a file that is absent, UserError for one that is damaged.
class RunEvidence {
 public:
  // step: the sealed step of the telemetry; by default its last step, which run.steps bounds.
  explicit RunEvidence(std::string folder, std::optional<int64_t> step = {});

  const std::string& folder() const { return folder_; }
  const Config& config();
  const Audit& audit();
  const TelemetryReader& telemetry();
  int64_t step();         // sealed
  int64_t steps_done();   // at most step()
  int64_t last_logged();  // at most step(); 0 = none
  int64_t tokens();

  // Values up to the sealed step.
  std::vector<StepValue> scalar(const std::string& name);
  std::vector<EvalValue> eval(const std::string& task, const std::string& metric);

 private:
  std::string require(const char* file) const;

  std::string folder_;
  std::optional<int64_t> step_;
  std::optional<Config> config_;
  std::optional<Audit> audit_;
  std::unique_ptr<TelemetryReader> telemetry_;
};

// UserError for a rule of a receipt that cannot be applied: what is wrong, then the rule itself.
[[noreturn]] void refuse_rule(const ReceiptJson& how, const std::string& what);

struct ClaimSpec {
  std::string name;
  std::string unit;
  ReceiptJson how;
};

// Claims that a receipt of the run must make: those that follow from its configuration, and those
// of its telemetry.
std::vector<ClaimSpec> config_claims(RunEvidence& run);
std::vector<ClaimSpec> telemetry_claims(RunEvidence& run);

// The value of the rule. UserError also for an unknown rule or a missing argument.
ReceiptJson recompute(RunEvidence& run, const ReceiptJson& how);
// By how much the value may be lower because it was read at a validation; 0 for other rules.
double resolution_of_rule(RunEvidence& run, const ReceiptJson& how);

// Rules by their arguments.
ReceiptJson how_eval(const std::string& task, const std::string& metric, const std::string& pick);
// left_out: steps that are not read as a crossing.
ReceiptJson how_first_at_or_below(double loss_nats, const std::string& in,
                                  const std::set<int64_t>& left_out = {});
ReceiptJson how_scalar(const std::string& name);
ReceiptJson how_router(const std::string& measure);
ReceiptJson how_audit(const std::string& field);
ReceiptJson how_measure(const std::string& name, std::optional<double> share = {});
constexpr int64_t kShareRule = 2;  // its version with a share

// Whether the run ended at its target before its planned steps.
bool stopped_at_target(RunEvidence& run);

// A string argument of a rule; UserError if it is missing or of another type.
std::string rule_text(const ReceiptJson& how, const char* key);

}  // namespace assay
