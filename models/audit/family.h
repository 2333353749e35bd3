// A comparison of models under every contract: each model's horizon, and the confounds, i.e.
// differences between the models other than the one that the comparison is about.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/audit/audit_report.h"
#include "models/audit/contract.h"

namespace assay {

// All models under one contract. nullopt if the contract does not apply to a model or needs a
// measurement.
struct FamilyHorizon {
  ContractKind kind;
  double coefficient = 0;  // 0 for kind steps
  // Of totalDN, as the reference's contract has it (shared_of()).
  SharedExperts shared = SharedExperts::kInTotal;
  std::vector<std::optional<int64_t>> steps = {};  // by model
  std::vector<std::optional<double>> epochs = {};  // by model; nullopt if data size is unknown
};

// The first model is the reference: each coefficient gives it its own steps, except that
// options.coefficient, if given, is used as tokens per parameter. Contracts whose coefficient is
// unknown (seconds, if the reference has no contract.step_seconds) are left out.
std::vector<FamilyHorizon> family_horizons(const std::vector<NamedConfig>& models,
                                           const AuditOptions& options);

// Steps per pass over the training data, from the headers of the shards or from synth's
// train_tokens; not whole if shuffled, when a step may have sequences of two passes. nullopt for a
// mixture and if the files cannot be read.
std::optional<double> steps_per_epoch(const Config& config);
// The same in tokens, which are whole.
std::optional<int64_t> epoch_tokens(const Config& config);

// A confound of the comparison: a short name, and a sentence with the values.
struct Confound {
  std::string name;
  std::string text;
};
std::vector<Confound> confounds(const std::vector<NamedConfig>& models,
                                const std::vector<FamilyHorizon>& horizons);
// Those of them that follow from the fields alone, which need not be those of a possible run.
std::vector<Confound> recorded_confounds(const std::vector<NamedConfig>& models);
// [{"name": ..., "text": ...}]
nlohmann::ordered_json confounds_json(const std::vector<Confound>& found);

// "dense 256, moe 512"; of more than four models the values: "256 (6 models), 512 (moe)".
std::string values_by_model(const std::vector<std::string>& names,
                            const std::vector<std::string>& values);

std::string family_table(const std::vector<NamedConfig>& models, const AuditOptions& options);
nlohmann::ordered_json family_json(const std::vector<NamedConfig>& models,
                                   const AuditOptions& options);

}  // namespace assay
