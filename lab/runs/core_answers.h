// The answers of runs to the rows of CORE (lab/runs/recorded_core.h), compared row by row.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/core_difference.h"
#include "lab/runs/seed_groups.h"

namespace assay {

// At the run's last CORE of all tasks and rows. nullopt if there is none, an earlier version wrote
// it, which kept no answers, or a later evaluation of the step has replaced them.
std::optional<std::vector<CoreAnswers>> core_answers(const RunRecord& run);

// CORE of model a minus that of b, over the rows; answers are means over a model's runs.
struct CoreRowComparison {
  std::optional<CoreDifference> difference;
  // Why there is none although all of the runs have scored all of CORE: their answers are of
  // prompts of other lengths, of other rows, not those of a run's own score, or no longer there. ""
  // otherwise.
  std::string absent;
};
CoreRowComparison compare_core_rows(const SeedGroup& a, const SeedGroup& b);

// Its difference alone. nullopt if a run of either has no answers, they answered other rows, or
// compare_core_rows() gives another reason.
std::optional<CoreDifference> core_row_difference(const SeedGroup& a, const SeedGroup& b);

// "CORE of moe minus dense: -0.0010, 95% interval over the rows -0.0130 to +0.0110, includes 0:
// these rows do not tell them apart".
std::string core_row_text(const std::string& a, const std::string& b, const CoreDifference& d);

nlohmann::ordered_json core_difference_json(const CoreDifference& d);

}  // namespace assay
