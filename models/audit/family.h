// Models side by side under every contract: the horizon each of them would have, and what differs
// between them besides what the comparison is about.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/audit/audit_report.h"
#include "models/audit/contract.h"

namespace assay {

// One model under one contract. Nothing where the contract does not apply or a measurement is
// missing.
struct FamilyHorizon {
  std::string kind;
  double coefficient = 0;                          // 0 for kind steps
  std::vector<std::optional<int64_t>> steps = {};  // by model
  std::vector<std::optional<double>> epochs =
      {};  // over the training data, where its size is known
};

// The first model is the reference: every coefficient is the one under which it takes its own
// steps. Tokens per parameter are options.coefficient when that is given. Contracts without a
// coefficient (seconds, when the reference has no contract.step_seconds) are left out.
std::vector<FamilyHorizon> family_horizons(const std::vector<NamedConfig>& models,
                                           const AuditOptions& options);

// How many steps the training data of a configuration last; from the headers of its shards or what
// synth is asked for. Nothing when the files are not there, and of a mixture.
std::optional<int64_t> steps_per_epoch(const Config& config);

// What a comparison of these models mixes up with the question: a short name, and a sentence with
// the values.
struct Confound {
  std::string name;
  std::string text;
};
std::vector<Confound> confounds(const std::vector<NamedConfig>& models,
                                const std::vector<FamilyHorizon>& horizons);

std::string family_table(const std::vector<NamedConfig>& models, const AuditOptions& options);
nlohmann::ordered_json family_json(const std::vector<NamedConfig>& models,
                                   const AuditOptions& options);

}  // namespace assay
