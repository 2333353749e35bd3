#include "tools/assay/commands/matrix_checks.h"

#include <utility>

#include "base/joined.h"
#include "base/memory_units.h"
#include "base/shell_word.h"
#include "engine/run/imported_run.h"
#include "lab/matrix/defaults.h"
#include "lab/matrix/edits_text.h"
#include "lab/matrix/judgeable.h"
#include "lab/matrix/selection.h"
#include "session/session_device.h"

namespace assay {

void check_summary(const MatrixArguments& a) {
  if (!a.summary) return;
  const std::pair<const char*, bool> others[] = {{"--dry-run", a.dry_run},
                                                 {"--reuse", !a.reuse.empty()},
                                                 {"--until-decided", a.until_decided.has_value()},
                                                 {"--stop-on-failure", a.stop_on_failure},
                                                 {"--fresh-changed", a.fresh_changed}};
  for (const auto& [option, given] : others) {
    if (!given) continue;
    throw UserError(std::string("--summary does not go with ") + option,
                    "it prints the tables of all finished runs and trains none: leave one out");
  }
}

void check_until_decided(const MatrixArguments& a, const MatrixFile& file) {
  if (!a.until_decided) return;
  if (file.claims.empty()) {
    throw UserError("--until-decided: " + file.path + " has no claims",
                    "write some: assay matrix --help");
  }
  if (!a.only.empty()) {
    throw UserError("--until-decided does not go with --only",
                    "a seed more is one of every model that a claim compares: leave one out");
  }
  if (*a.until_decided < int64_t(file.seeds.size())) {
    throw UserError(strprintf("--until-decided %ld is fewer than the %zu seeds of ",
                              long(*a.until_decided), file.seeds.size()) +
                        file.path,
                    "it is the largest number of seeds");
  }
}

std::vector<std::string> first_notes(const MatrixArguments& a, const MatrixPlan& plan) {
  if (a.summary) return {};
  const Matrix& matrix = *plan.matrix;
  const MatrixFile& file = matrix.file;
  std::vector<std::string> notes;
  const bool may_grow = a.until_decided.value_or(1) > 1;
  if (!file.claims.empty() && file.seeds.size() == 1 && !may_grow) {
    notes.emplace_back("one seed decides no claim: add seeds, or --until-decided N");
  }
  if (const std::string replaced = replaced_seed(matrix); !replaced.empty()) {
    notes.push_back(replaced);
  }
  for (const std::string& note : no_verdict_notes(plan)) notes.push_back(note);
  return notes;
}

std::vector<std::string> imported_models(const MatrixArguments& a, const MatrixFile& file) {
  std::vector<std::string> lines;
  if (a.summary) return lines;
  for (const MatrixModel& model : file.models) {
    const std::string text = random_weights_text(model.config);
    if (text.empty() || leaves_out(file, a.only, model.name)) continue;
    lines.push_back("model " + model.name + ": " + text);
  }
  return lines;
}

std::string advised_command(const MatrixArguments& a, Cells cells) {
  std::string command = "assay";
  for (size_t i = 1; i < a.command.size(); ++i) {
    const std::string& word = a.command[i];
    if (word == "--summary" || word == "--json") continue;
    if (cells == Cells::kAll && word.starts_with("--only=")) continue;
    if (cells == Cells::kAll && word == "--only") {
      ++i;  // and its value
      continue;
    }
    command += " " + shell_word(word);
  }
  return command;
}

std::vector<std::string> advice_on_edits(const MatrixArguments& a, const MatrixEdits& edits) {
  std::vector<std::string> lines;
  const bool has_changed = !edits.changed.empty();
  if (has_changed) {
    lines.push_back(changed_runs_text(edits) +
                    " of another configuration or other data: in no table below");
  }
  if (const std::string give_back = give_back_text(edits); !give_back.empty()) {
    std::string command = advised_command(a) + " --summary";
    for (const std::string& set : sets_to_give_back(edits)) command += " --set " + shell_word(set);
    lines.push_back(give_back + ": " + command);
  }
  lines.push_back("its files are left as they are; " + take_over_text(a, edits, "the edit"));
  return lines;
}

std::string take_over_text(const MatrixArguments& a, const MatrixEdits& edits,
                           const std::string& what) {
  const bool has_changed = !edits.changed.empty();
  return advised_command(a, Cells::kAll) + (has_changed ? " --fresh-changed" : "") + " takes " +
         what + " over" +
         (has_changed ? ": it deletes " + changed_runs_text(edits) + " and trains them again" : "");
}

void require_judgeable(const MatrixArguments& a, const Matrix& matrix) {
  try {
    require_judgeable_claims(matrix);
  } catch (const ModelError& error) {
    if (!leaves_out(matrix.file, a.only, error.model())) throw;
    throw UserError(error.what(), error.hint() +
                                      "; claims are about all models of the file, also those that "
                                      "--only leaves out");
  }
}

void require_unchanged(const MatrixArguments& a, const MatrixFolder& folder,
                       const MatrixEdits& edits) {
  if (edits.changed.empty() || a.fresh_changed) return;
  std::string more;
  if (edits.changed.size() > 1) more = strprintf(" (and %zu more)", edits.changed.size() - 1);
  const std::string give_back = give_back_text(edits);
  throw UserError(
      strprintf("%zu runs of %s were trained with another configuration or other data: ",
                edits.changed_cells.size(), folder.path().c_str()) +
          edits.changed.front().text() + more,
      (give_back.empty() ? "" : give_back + "; else ") +
          "undo the edit, move these runs away, or choose another name or --run-dir; "
          "--fresh-changed deletes them and trains them again");
}

void require_sealed_claims(const MatrixArguments& a, const MatrixFolder& folder,
                           const MatrixEdits& edits) {
  if (!edits.claims.any() || a.late_claims) return;
  const auto list = [](const char* what, const std::vector<std::string>& names) {
    return names.empty() ? "" : std::string("; ") + what + ": " + joined(names, ", ");
  };
  throw UserError("the claims of " + folder.path() + " were edited after a run had begun" +
                      list("new", edits.claims.added) + list("gone", edits.claims.removed),
                  "undo the edit; --late-claims takes it over, and every table, page and receipt "
                  "says that it came after the runs");
}

void require_comparable_models(const MatrixArguments& a, const Matrix& matrix) {
  require_given_precisions(matrix);
  const std::string difference = different_data(matrix);
  if (difference.empty() || a.force) return;
  throw UserError("the models cannot be compared: " + difference,
                  "losses on other tokens, in another context or where runs stop at another loss, "
                  "and scores with other prompts or seen at another interval, say nothing of the "
                  "models; --force trains them anyway, and the tables say so");
}

void require_memory(const MatrixFile& file, const std::vector<PlannedRun>& planned) {
  const bool on_gpu = backend_of(file.device) == Backend::kGpu;
  for (const PlannedRun& run : planned) {
    if (run.cell->memory_bytes <= file.memory_bytes) continue;
    throw UserError(
        strprintf("%s needs %.2f GiB, but the memory budget is %.2f GiB", run.cell->name.c_str(),
                  in_gib(run.cell->memory_bytes), in_gib(file.memory_bytes)),
        std::string("make run.micro_batch smaller, ") +
            (on_gpu ? "end other programs on the GPU (nvidia-smi), " : "") +
            "or raise the budget (memory: in the file, or --memory)");
  }
}

std::vector<UserError> refusals(const MatrixArguments& a, const MatrixFolder& folder,
                                const Matrix& matrix, const MatrixEdits& edits,
                                const std::vector<PlannedRun>& planned) {
  std::vector<UserError> found;
  const auto collect = [&](const auto& require) {
    try {
      require();
    } catch (const UserError& error) {
      found.push_back(error);
    }
  };
  collect([&] { require_comparable_models(a, matrix); });
  collect([&] { require_unchanged(a, folder, edits); });
  collect([&] { require_sealed_claims(a, folder, edits); });
  if (!a.memory.empty()) collect([&] { require_memory(matrix.file, planned); });
  return found;
}

}  // namespace assay
