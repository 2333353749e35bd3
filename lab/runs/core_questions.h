// Whether runs were asked the same questions of CORE: only then are their scores comparable.
#pragma once

#include <span>
#include <string>

#include "lab/runs/run_record.h"

namespace assay {

// "" if the prompts of all runs were cut at one length, and were of one bundle: one of the same
// tasks, rows and accuracies of guessing, as far as evals/step-N.json tells of both runs, else one
// of the same name. Otherwise what differs: "a was scored with prompts of at most 64 tokens, b with
// 512". What a run has neither recorded nor configured is not compared. shown: how a run is called.
std::string different_core_questions(std::span<const RunRecord* const> runs,
                                     std::string RunRecord::*shown = &RunRecord::name);

}  // namespace assay
