// The audit as text and as JSON, for several models.
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
  double coefficient = 0;              // 0 = each config's own contract.coefficient
  std::vector<double> fractions = {};  // empty = the config's contract.fraction, or 0.2 if it is 1
  std::vector<int64_t> steps = {};     // steps at which ratios are given; empty = the run's steps
  SharedExperts shared = SharedExperts::kInTotal;  // kLeftOut: in all, whatever their contracts say
};

struct NamedConfig {
  std::string name;
  Config config;
};

// As the options or the configuration's own contract say.
SharedExperts shared_of(const Config& config, const AuditOptions& options);

// One column per model.
std::string audit_table(const std::vector<NamedConfig>& models, const AuditOptions& options);
// {"models": {name: {...}}}
nlohmann::ordered_json audit_json(const std::vector<NamedConfig>& models,
                                  const AuditOptions& options);

}  // namespace assay
