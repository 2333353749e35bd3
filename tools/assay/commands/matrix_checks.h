// What `assay matrix` refuses before anything is trained: options that do not go together, edits of
// a file whose runs have begun, models that cannot be compared, runs that do not fit into memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "lab/matrix/file.h"
#include "lab/matrix/matrix.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/state.h"
#include "tools/assay/matrix_runner.h"

namespace assay {

struct MatrixArguments {
  std::string file;
  std::vector<std::string> sets, only, reuse;
  std::string folder, device, memory;
  std::optional<int64_t> jobs, threads;
  double tflops = 0;  // assumed by --dry-run
  std::optional<int64_t> until_decided;
  bool dry_run = false, summary = false, json = false;
  bool force = false, reuse_elsewhere = false, fresh_changed = false, stop_on_failure = false,
       late_claims = false;
  std::vector<std::string> command;
};

// --summary is about all runs of the folder and trains none.
void check_summary(const MatrixArguments& a);
// --until-decided needs claims, and no fewer seeds than the file has.
void check_until_decided(const MatrixArguments& a, const MatrixFile& file);

// What a dry run and the start say first: one seed decides no claim, a model's own is replaced, the
// routers of short runs get no verdict. Nothing with --summary.
std::vector<std::string> first_notes(const MatrixArguments& a, const MatrixPlan& plan);

// For each model whose configuration is that of an imported run: no run of a matrix begins from
// imported weights. None with --summary.
std::vector<std::string> imported_models(const MatrixArguments& a, const MatrixFile& file);

// The command itself, but for --summary and --json: with its --set, --run-dir and so on. kAll:
// without --only.
enum class Cells { kSelected, kAll };
std::string advised_command(const MatrixArguments& a, Cells cells = Cells::kSelected);

// "assay matrix m.yaml --fresh-changed takes the edit over: it deletes 2 runs and trains them
// again".
std::string take_over_text(const MatrixArguments& a, const MatrixEdits& edits,
                           const std::string& what);

// What --summary of an edited matrix says below the edits: which runs are in no table, the --set
// that would bring them back, and what takes the edit over.
std::vector<std::string> advice_on_edits(const MatrixArguments& a, const MatrixEdits& edits);

// require_judgeable_claims(); its hint says where it is about a model that --only leaves out.
void require_judgeable(const MatrixArguments& a, const Matrix& matrix);

// UserError where runs that are there have another configuration or were trained on other data,
// unless --fresh-changed.
void require_unchanged(const MatrixArguments& a, const MatrixFolder& folder,
                       const MatrixEdits& edits);
// Claims that are edited once results are known are no prediction; UserError unless --late-claims.
void require_sealed_claims(const MatrixArguments& a, const MatrixFolder& folder,
                           const MatrixEdits& edits);
// UserError for models whose own precision the matrix would replace, and for those of
// different_data(), unless --force.
void require_comparable_models(const MatrixArguments& a, const Matrix& matrix);
// UserError where one run alone needs more than the budget.
void require_memory(const MatrixFile& file, const std::vector<PlannedRun>& planned);

// What of these four the command would throw, for --dry-run. The budget counts only if --memory
// names it: a plan that does not fit this machine may be for another one.
std::vector<UserError> refusals(const MatrixArguments& a, const MatrixFolder& folder,
                                const Matrix& matrix, const MatrixEdits& edits,
                                const std::vector<PlannedRun>& planned);

}  // namespace assay
