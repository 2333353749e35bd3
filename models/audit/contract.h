// Resolves a contract before the run begins: from a reference to a coefficient, from the
// coefficient to run.steps. The resolved configuration is self-contained: it has coefficient, steps
// and landings in numbers, and names no reference.
#pragma once

#include <optional>
#include <string>

#include "models/audit/horizon.h"

namespace assay {

// What another run spent, or what a configuration would spend.
struct Reference {
  std::string name;  // as the user gave it
  Config config = {};
  Audit audit = {};
  int64_t steps = 0;                   // planned by a configuration, or trained by a run
  int64_t tokens = 0;                  // of these steps
  std::optional<double> seconds = {};  // of training; runs only
};

// The reference of a loaded configuration. Throws UserError if its own contract needs a reference
// or a measurement.
Reference reference_of(const std::string& name, const Config& config);
// Reads a configuration file or a run's folder. Throws UserError if the path is neither or the run
// is not finished, and as reference_of.
Reference read_reference(const std::string& path);

// The coefficient that gives the reference its own steps; not for kind steps. Throws UserError for
// kind seconds if the reference is a configuration.
double reference_coefficient(ContractKind kind, const Reference& reference, SharedExperts shared);

// Replaces contract.reference by contract.coefficient (not for kind steps) and run.steps (kinds
// steps and active-width), and records the derivation in contract.derived_from. Does nothing
// without a reference.
void resolve_reference(Config& config);

// Stands in contract.derived_from of a run that measured contract.step_seconds itself.
constexpr const char* kMeasuredStepSeconds = "step_seconds measured when the run began";

// contract.step_seconds of a contract in seconds where the user gave it; 0 = the run measures it.
double given_step_seconds(const ContractConfig& contract);

// Sets run.steps and contract.landings. horizon_is_known(config) must hold.
void resolve_steps(Config& config);

}  // namespace assay
