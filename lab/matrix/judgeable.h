// What no run of a matrix can decide, found before anything is trained: claims, and whether routers
// collapsed.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/matrix.h"
#include "lab/matrix/plan.h"

namespace assay {

// ModelError with the claim's file and line if the runs of one of its models, under a contract and
// precision where it is judged, can never have its measure: loads of a model without experts, CORE
// or a target that the configuration does not ask for, a share of the steps without evaluations
// near it, routers over more logged steps (telemetry.window) than the run has. UserError if it is
// about a share of the runs and no test fits it (untestable_share()), or if its bound is not from 0
// to 1 and the measure is, as where a share is given in percent.
void require_judgeable_claims(const Matrix& matrix);

// Of the runs that would begin, the models with experts whose runs log fewer steps than
// telemetry.window: their routers stay too early to judge. A line for each number of steps.
std::vector<std::string> no_verdict_notes(const MatrixPlan& plan);

}  // namespace assay
