// The claims of a run and the rules that recompute them from config.yaml and telemetry.db.
//
// A rule is a name with arguments, written into the receipt as `how`:
//
//   {"rule": "audit", "field": "total"}                        a count of models/audit/audit.h
//   {"rule": "planned_steps"}                                  run.steps
//   {"rule": "horizon"}                                        of the whole contract: models/audit/horizon.h
//   {"rule": "steps_done"}  {"rule": "tokens"}                 tokens = steps_done * run.batch_tokens
//   {"rule": "tokens_per_parameter", "field": "active"}        tokens / a count
//   {"rule": "tokens_per_routed_expert"}                       tokens * K / E
//   {"rule": "train_flops"}                                    FLOPs per token * tokens
//   {"rule": "scalar", "name": "train_s"}                      its last value
//   {"rule": "eval", "task": "val", "metric": "loss_nats", "pick": "last"}     or best, best_step, at (with "step")
//   {"rule": "first_at_or_below", "loss_nats": 3.28, "in": "step"}             or tokens, seconds, flops
//   {"rule": "router", "measure": "max_load_norm", "layer": 3}  or dead_share, saturated_at_step, without layer:
//                                                               the worst, the mean; saturated_layers
//
// Everything is taken up to the sealed step. A value is a number, or null for what did not happen.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/telemetry/reader.h"
#include "lab/receipt/receipt.h"
#include "models/audit/audit.h"

namespace assay {

// An artifact that is not there: nothing can be said against the claim.
struct NotAvailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What claims of one run are recomputed from; read when it is asked for. NotAvailable for a file
// that is absent, UserError for one that is damaged.
class RunEvidence {
 public:
  // step: where the telemetry is sealed; by default where it ends.
  explicit RunEvidence(std::string folder, std::optional<int64_t> step = {});

  const std::string& folder() const { return folder_; }
  const Config& config();
  const Audit& audit();
  const TelemetryReader& telemetry();
  int64_t step();         // sealed
  int64_t steps_done();   // at most step()
  int64_t last_logged();  // at most step(); 0 = none
  int64_t tokens();

  // Not after the sealed step.
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

struct ClaimSpec {
  std::string name;
  std::string unit;
  ReceiptJson how;
};

// What a receipt of the run must claim: what follows from its configuration, and what its telemetry
// has.
std::vector<ClaimSpec> config_claims(RunEvidence& run);
std::vector<ClaimSpec> telemetry_claims(RunEvidence& run);

// The value that the rule gives. UserError also when there is no such rule or an argument is
// missing.
ReceiptJson recompute(RunEvidence& run, const ReceiptJson& how);

// Rules that matrices ask of their runs.
ReceiptJson how_eval(const std::string& task, const std::string& metric, const std::string& pick);
ReceiptJson how_eval_at(const std::string& task, const std::string& metric, int64_t step);
ReceiptJson how_first_at_or_below(double loss_nats, const std::string& in);
ReceiptJson how_scalar(const std::string& name);
ReceiptJson how_router(const std::string& measure);
ReceiptJson how_audit(const std::string& field);

// An argument of a rule; UserError when it is missing or of another type.
std::string rule_text(const ReceiptJson& how, const char* key);

}  // namespace assay
