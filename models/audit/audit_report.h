// The audit in words and in JSON: several models side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/audit/horizon.h"
#include "models/audit/model_table.h"

namespace assay {

struct AuditOptions {
  std::vector<std::string> contracts = {"totalDN", "activeDN"};
  double coefficient = 0;  // 0 = each config's own contract.coefficient
  std::vector<double> fractions =
      {};                           // empty = the config's contract.fraction, or 0.2 when that is 1
  std::vector<int64_t> steps = {};  // where ratios are given; empty = run.steps
  SharedExperts shared = SharedExperts::kInTotal;
};

struct NamedConfig {
  std::string name;
  Config config;
};

// One column a model.
std::string audit_table(const std::vector<NamedConfig>& models, const AuditOptions& options);
// {"models": {name: {...}}}
nlohmann::ordered_json audit_json(const std::vector<NamedConfig>& models,
                                  const AuditOptions& options);

}  // namespace assay
