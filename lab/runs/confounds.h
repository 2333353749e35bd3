// What differs between compared models beside what the comparison is about, from the configurations
// that their runs recorded.
//
//   for (const Confound& c : run_confounds(groups)) text += "confound: " + c.text + "\n";
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/runs/seed_groups.h"
#include "models/audit/family.h"

namespace assay {

// recorded_confounds() of the audit, one for each name, "seeds", "program" (the builds that trained
// the runs, also those of one model), "training_data" by the content of the shards, and "passes"
// over them if a model saw them more than once and those of all are known (lab/runs/passes.h);
// empty for fewer than two models. Each group has a run. Left out are numbers of experts, which
// mixtures differ in by design, and tokenizer and validation, which forbid a comparison
// (incomparable_differences() of lab/compare/compare.h). Precision is that of the runs. Warm-up and
// warm-down differ where neither their steps nor their shares of the run agree; a warm-down of as
// many steps also where its shares are far apart.
std::vector<Confound> run_confounds(std::span<const SeedGroup> groups);

// "They also differ in precision, data order."; "" if there are none.
std::string confounds_sentence(const std::vector<Confound>& found);

}  // namespace assay
