// Resolving a contract before the run begins: from a reference to a coefficient, from the
// coefficient to run.steps. The resolved configuration stands alone: it has coefficient, steps and
// landings in numbers, and names no reference.
#pragma once

#include <optional>
#include <string>

#include "models/audit/horizon.h"

namespace assay {

// What another run spent, or would spend.
struct Reference {
  std::string name;  // as the user gave it
  Config config = {};
  Audit audit = {};
  int64_t steps = 0;                   // planned ones of a configuration, those trained of a run
  int64_t tokens = 0;                  // of these steps
  std::optional<double> seconds = {};  // of training; only of a run
};

// A configuration that is there already.
Reference reference_of(const std::string& name, const Config& config);
// A file is a configuration, a folder a run. UserError: neither, a run that is not finished, a
// configuration whose own contract needs a reference or a measurement.
Reference read_reference(const std::string& path);

// The coefficient under which the reference takes its own steps. UserError when it has none:
// seconds of a configuration, any coefficient of kind steps.
double reference_coefficient(const std::string& kind, const Reference& reference,
                             SharedExperts shared);

// contract.reference becomes contract.coefficient (of kinds steps and active-width also run.steps),
// and contract.derived_from says how. Without a reference nothing changes.
void resolve_reference(Config& config);

// run.steps and contract.landings in numbers. The horizon is known (models/audit/horizon.h).
void resolve_steps(Config& config);

}  // namespace assay
