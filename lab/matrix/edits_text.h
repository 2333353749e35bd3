// What the commands say of the edits of a matrix (find_edits()): each difference once, with the
// cells that have it, and the --set that would undo it.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/state.h"

namespace assay {

// Lines under "the matrix was edited since it was started"; none without edits.
std::vector<std::string> edit_lines(const MatrixEdits& edits);

// The same in one line, for the seal of the claims:
// "8 cells changed (optimizer.lr: 0.003 -> 0.006); 2 added (a, b)".
std::string cells_edit_text(const MatrixEdits& edits);

// The --set of the matrix as it was recorded that are not given now and give a field in which runs
// or waiting cells differ. Where an earlier version recorded none: the values of fields in which
// every run and every waiting cell differs alike.
std::vector<std::string> sets_to_give_back(const MatrixEdits& edits);

// "they were trained with --set run.steps=120: give it again"; "" if sets_to_give_back() is empty,
// or no run differs.
std::string give_back_text(const MatrixEdits& edits);

// "6 runs (4 of them finished)": those that --fresh-changed deletes.
std::string changed_runs_text(const MatrixEdits& edits);

}  // namespace assay
