// assay matrix: trains a family of runs from one file. Each run is an `assay train` process; this
// process starts them, waits, and writes the tables.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/joined.h"
#include "base/memory_limit.h"
#include "base/shell_word.h"
#include "base/some_names.h"
#include "cuda/context.h"
#include "engine/run/folder_lock.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/edits_text.h"
#include "lab/matrix/judgeable.h"
#include "lab/matrix/matrix_receipt.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/report.h"
#include "lab/matrix/selection.h"
#include "machine/gpu_meter.h"
#include "session/data_evidence.h"
#include "session/session_device.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/matrix_checks.h"
#include "tools/assay/matrix_evidence.h"
#include "tools/assay/matrix_runner.h"

namespace assay {
namespace {

// Prints a line on stderr; stdout is left to the tables or the JSON.
void say(const std::string& line) {
  std::fflush(stdout);  // where both go to one file, no line is inside another one
  std::fprintf(stderr, "%s\n", line.c_str());
}

// Of a GPU what is free for the plans of so many runs, where the driver says it.
int64_t memory_of(Backend backend, int64_t jobs) {
  if (backend == Backend::kCpu) return int64_t(memory_limit().bytes);
  const gpu::DeviceFacts facts = gpu::device_facts();
  if (facts.memory_bytes > 0) {
    const int64_t free = GpuMeter(facts.bus).free_bytes().value_or(facts.memory_bytes);
    return std::max<int64_t>(0, std::min(free, facts.memory_bytes) - jobs * gpu::kTakenLater);
  }
  throw UserError("--device cuda: this machine has no GPU whose memory could be planned",
                  "name the GPU's memory for a --dry-run: --memory 139GiB");
}

// Bytes of --memory: a number with a unit, as in a matrix file ("8GiB"), also in small letters and
// as 8G or 8Gi. A number alone would be bytes, which nobody means.
int64_t memory_option(const std::string& text) {
  const char* const hint = "a number with a unit, e.g. --memory 8GiB, or 8G";
  const size_t end = text.find_last_of("0123456789.") + 1;
  std::string unit;
  for (const char c : text.substr(end)) {
    if (c != ' ') unit += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  if (end > 0 && unit.empty()) {
    throw UserError("--memory " + text + " has no unit: that would be bytes", hint);
  }
  if (unit.ends_with('B')) unit.pop_back();
  if (unit.ends_with('I')) unit.back() = 'i';
  const std::optional<int64_t> bytes = read_bytes(text.substr(0, end) + unit + "B");
  if (bytes && *bytes > 0) return *bytes;
  throw UserError("--memory " + text + " is not an amount of memory", hint);
}

MatrixFile load_file(const MatrixArguments& a) {
  MatrixFile file = load_matrix_file(a.file, a.sets);
  if (a.jobs) file.jobs = *a.jobs;
  if (a.threads) file.threads = *a.threads;
  if (!a.memory.empty()) file.memory_bytes = memory_option(a.memory);
  if (!a.device.empty()) file.device = a.device;
  if (file.memory_bytes == 0) file.memory_bytes = memory_of(backend_of(file.device), file.jobs);
  return file;
}

// What memory is planned for. A GPU that is only planned for has the capability of the kernels.
ModelPlace place_of(const MatrixFile& file) {
  ModelPlace place;
  place.backend = backend_of(file.device);
  if (place.backend == Backend::kCpu) return place;
  if (const int capability = gpu::device_facts().capability; capability > 0) {
    place.capability = capability;
  }
  return place;
}

// Of all models of the file, also those that --only leaves out.
Matrix lay_out_all(const MatrixArguments& a, const MatrixFile& file) {
  try {
    return lay_out(file, place_of(file));
  } catch (const ModelError& error) {
    if (!leaves_out(file, a.only, error.model())) throw;
    throw UserError(error.what(), error.hint() +
                                      "; the tables have all models of the file, also this one "
                                      "that --only leaves out");
  }
}

void say_edits(const MatrixEdits& edits) {
  if (!edits.started || !edits.any()) return;
  say("the matrix was edited since it was started");
  for (const std::string& line : edit_lines(edits)) say(line);
}

// Runs of the folder that fit cells of now under other names: of a model or contract that was
// renamed.
void say_renamed(const MatrixArguments& a, const std::vector<const Cell*>& selected,
                 const MatrixFolder& folder, const MatrixEdits& edits) {
  if (!edits.started || !edits.any() || !a.reuse.empty()) return;
  const std::vector<ReusableRun> runs = reusable_within(selected, folder);
  if (runs.empty()) return;
  std::vector<std::string> names;
  for (const ReusableRun& run : runs)
    names.push_back(run.cell->name + " of " + std::filesystem::path(run.run).filename().string());
  say(strprintf("note: %zu waiting cell%s the configuration of finished runs of this folder (",
                runs.size(), runs.size() == 1 ? " has" : "s have") +
      some_names(names) + "): --reuse " + shell_word(folder.path()) + " copies them");
}

// Builds generated corpora once, and reports missing files before anything is trained.
void prepare_data(const std::vector<PlannedRun>& planned) {
  std::set<std::string> seen;
  for (const PlannedRun& run : planned) {
    if (seen.insert(run.cell->model).second) resolve_data(run.cell->config);
  }
}

ReuseEvidence::Elsewhere elsewhere(const MatrixArguments& a) {
  return a.reuse_elsewhere ? ReuseEvidence::Elsewhere::kAccept : ReuseEvidence::Elsewhere::kRefuse;
}

void take_over_runs(const std::vector<TakenRun>& runs, const MatrixFolder& folder) {
  for (const auto& [run, evidence] : runs) {
    const std::string device = take_over(run, folder, evidence);
    say(run.cell->name + " is reused from " + run.run +
        (device.empty()
             ? ""
             : ", trained on " + device + " (this matrix trains on " + evidence.device + ")"));
  }
}

void write_matrix_receipt(const MatrixFolder& folder, const MatrixSummary& summary) {
  write_receipt(folder.file(kReceiptName), make_matrix_receipt(folder, summary));
}

// The tables, and a warning for each run that cannot be read.
MatrixSummary summarise(const Matrix& matrix, const MatrixFolder& folder) {
  MatrixSummary summary = summarise_matrix(matrix, folder);
  for (const UserError& unread : summary.unread) {
    say(std::string("warning: ") + unread.what());
    if (!unread.hint().empty()) say("hint: " + unread.hint());
  }
  return summary;
}

// What the runs warned of, each once: nobody reads the logs of runs that went well.
void say_warnings(const std::vector<RunWarning>& warnings) {
  constexpr size_t kMost = 10;
  for (size_t i = 0; i < std::min(kMost, warnings.size()); ++i) {
    const RunWarning& warning = warnings[i];
    say(strprintf("warning: %s (%s, %s)", warning.text.c_str(),
                  warning.runs == 1 ? "1 run" : strprintf("%zu runs", warning.runs).c_str(),
                  warning.log.c_str()));
  }
  if (warnings.size() > kMost)
    say(strprintf("warning: the logs have %zu more", warnings.size() - kMost));
}

// Writes the tables and the receipt.
MatrixSummary write_results(const MatrixFolder& folder, const Matrix& matrix) {
  MatrixSummary summary = summarise(matrix, folder);
  write_summary(folder, summary);
  write_matrix_receipt(folder, summary);
  return summary;
}

// False, and a warning, if the folder cannot be written.
bool try_to_write_summary(const MatrixFolder& folder, const MatrixSummary& summary) {
  try {
    write_summary(folder, summary);
    return true;
  } catch (const UserError& error) {
    say(std::string("warning: the tables are only printed: ") + error.what());
    return false;
  }
}

// With --summary --only those rows; the files have all.
void print_summary(const MatrixArguments& a, MatrixSummary summary) {
  if (a.summary && !a.only.empty())
    show_only(summary, selected_cells(*summary.matrix, a.only), a.only);
  if (a.json) {
    std::fputs(summary_json(summary).c_str(), stdout);
  } else {
    std::fputs(summary_markdown(summary).c_str(), stdout);
  }
}

// Prints one error line that names every failed cell. Returns kExitStoppedByGuard if guards stopped
// all of them, else kExitUserError.
int print_failures(const std::vector<FailedRun>& failed, const std::vector<const Cell*>& refused,
                   const MatrixFolder& folder) {
  std::string all;
  bool only_guards = refused.empty();
  for (const FailedRun& run : failed) {
    only_guards &= run.code == kExitStoppedByGuard;
    all += (all.empty() ? "" : "; ") + run.cell + " (exit " + std::to_string(run.code) + ": " +
           run.error + ")";
  }
  for (const Cell* cell : refused) {
    all += (all.empty() ? "" : "; ") + cell->name + " (" + cell->unavailable + ")";
  }
  say(strprintf("error: %zu cells did not finish training: ", failed.size() + refused.size()) +
      all);
  say(failed.empty() ? "hint: remove these precisions, or select others with --only"
                     : "hint: their output is in " + folder.file("logs") +
                           "; the same command retries the cells that no guard stopped; "
                           "telemetry.collapse_stop can be changed in the matrix file");
  return only_guards ? kExitStoppedByGuard : kExitUserError;
}

// The runs of a plan that are not done, by what becomes of them.
struct Work {
  std::vector<PlannedRun> planned;
  std::vector<ReusableRun> reused;
  std::vector<FailedRun> failed;  // stopped by their guards earlier
};

Work work_of(const MatrixPlan& plan) {
  Work work;
  for (const PlannedCell& p : plan.runs) {
    const bool fresh = !p.status.differences.empty();
    if (!p.reuse.empty()) {
      work.reused.push_back({.cell = p.cell, .run = p.reuse});
    } else if (p.status.state == CellState::kGuard && !fresh) {
      work.failed.push_back({.cell = p.cell->name,
                             .code = kExitStoppedByGuard,
                             .error = strprintf("stopped by its guard (%s) at step %ld",
                                                p.status.end.c_str(), long(p.status.steps_done))});
    } else if (p.status.state != CellState::kDone || fresh || p.status.unclosed) {
      work.planned.push_back({.cell = p.cell, .status = p.status, .fresh = fresh});
    }
  }
  return work;
}

// --dry-run. kExitUserError if the command itself would refuse what the plan shows.
int print_plan(const MatrixArguments& a, MatrixPlan& plan, const MatrixFolder& folder,
               const MatrixEdits& edits) {
  for (const UserError& error : refusals(a, folder, *plan.matrix, edits, work_of(plan).planned)) {
    say(std::string("refused: ") + error.what());
    say("hint: " + error.hint());
    plan.refused.push_back(error.what());
  }
  plan.flop_per_s = a.tflops * 1e12;
  plan.fresh_changed = a.fresh_changed;
  plan.most_seeds = a.until_decided.value_or(0);
  examine_plan(plan, elsewhere(a), folder);
  std::fputs((a.json ? plan_json(plan) : plan_text(plan)).c_str(), stdout);
  const bool not_copied = std::any_of(plan.runs.begin(), plan.runs.end(),
                                      [](const PlannedCell& run) { return !run.refused.empty(); });
  return not_copied || !plan.refused.empty() ? kExitUserError : kExitDone;
}

// Makes the folder, which the caller has locked, ready for the runs. Evidence and data are checked
// before anything is written.
void prepare_folder(const MatrixArguments& a, const MatrixFolder& folder, const Matrix& matrix,
                    const MatrixEdits& edits, const Work& work) {
  remove_incomplete_copies(matrix, folder);
  const std::vector<TakenRun> taken =
      examine_runs(matrix.file.device, elsewhere(a), work.reused, folder);
  prepare_data(work.planned);
  // Before copying, so that an interrupted copy is in a matrix's folder.
  write_matrix(folder, matrix, edits, int64_t(taken.size()));
  take_over_runs(taken, folder);
  for (const PlannedRun& run : work.planned) folder.write_config(*run.cell);
}

// Once no run differs any more, the record has the --set of now only.
void forget_old_sets(const MatrixFolder& folder, const Matrix& matrix) {
  const MatrixEdits left = find_edits(folder, matrix);
  if (left.changed.empty()) write_matrix(folder, matrix, left);
}

// What one number of seeds came to.
struct Round {
  int code = kExitDone;
  std::vector<std::string> open;  // claims that one seed more may decide, if there may be one more
};

// Claims that further seeds could decide; none unless --until-decided allows another seed.
std::vector<std::string> open_claims(const MatrixArguments& a, const MatrixSummary& summary) {
  const MatrixFile& file = summary.matrix->file;
  if (!a.until_decided || int64_t(file.seeds.size()) >= *a.until_decided) return {};
  return undecided_claims(evaluate_claims(file.claims, summary.tables));
}

// Trains what is planned and writes the tables, which it prints after the last round.
Round train_matrix(const MatrixArguments& a, const MatrixFolder& folder, const Matrix& matrix,
                   const MatrixPlan& plan, Work work) {
  say(strprintf("matrix %s: %zu runs, %zu of them done; %zu to train in %s",
                matrix.file.name.c_str(), plan.runs.size(),
                plan.runs.size() - work.planned.size() - work.failed.size(), work.planned.size(),
                folder.path().c_str()));
  if (plan.free_disk && plan.checkpoint_bytes_left() > *plan.free_disk) {
    say("warning: " + disk_text(plan));
  }
  RunnerOptions options{
      .program = a.command.front(),
      .device = matrix.file.device,
      .budget = {.jobs = matrix.file.jobs, .memory_bytes = matrix.file.memory_bytes}};
  if (a.stop_on_failure) options.on_failure = RunnerOptions::OnFailure::kStop;
  const RunnerResult result = train_cells(folder, std::move(work.planned), options);
  say_warnings(result.warnings);
  for (const std::string& note : no_verdict_notes(plan)) say("warning: " + note);
  std::vector<FailedRun>& failed = work.failed;
  failed.insert(failed.end(), result.failed.begin(), result.failed.end());
  MatrixSummary summary = write_results(folder, matrix);
  const bool done = !result.interrupted && failed.empty() && plan.unavailable.empty();
  Round round;
  if (done) round.open = open_claims(a, summary);
  if (round.open.empty()) print_summary(a, std::move(summary));
  if (result.interrupted) {
    say("interrupted: run the same command to resume");
    round.code = kExitInterrupted;
  } else if (!done) {
    round.code = print_failures(failed, plan.unavailable, folder);
  }
  return round;
}

// --summary. Of an edited file the tables are printed only: what is on the disk is of the matrix as
// it was trained. So are those of a folder that cannot be written.
void summarise(const MatrixArguments& a, const MatrixFolder& folder, const Matrix& matrix,
               const MatrixEdits& edits) {
  if (!edits.started) {
    throw UserError("no matrix in " + folder.path(), "start it: " + advised_command(a));
  }
  require_sealed_claims(a, folder, edits);
  if (edits.any() && edits.claims.any()) {
    throw UserError("--summary: " + a.file + " has other claims and other cells than " +
                        folder.file(kMatrixRecord),
                    take_over_text(a, edits, "both"));
  }
  if (edits.any()) {
    say_edits(edits);
    for (const std::string& line : advice_on_edits(a, edits)) say(line);
    return print_summary(a, summarise(matrix, folder));
  }
  if (edits.claims.any()) write_matrix(folder, matrix, edits);
  MatrixSummary summary = summarise(matrix, folder);
  if (try_to_write_summary(folder, summary)) write_matrix_receipt(folder, summary);
  print_summary(a, std::move(summary));
}

// Everything but further rounds of --until-decided.
Round run_seeds(const MatrixArguments& a, const MatrixFile& file, const MatrixFolder& folder) {
  Matrix matrix = lay_out_all(a, file);
  prefer_existing_runs(matrix, folder);
  // The tables of --summary are of what the runs recorded, whatever became of their files.
  if (!a.summary)
    note_data(matrix, folder, a.reuse.empty() ? DataOf::kBegunRuns : DataOf::kAllRuns);
  const std::vector<const Cell*> selected = selected_cells(matrix, a.only);
  const MatrixEdits edits = find_edits(folder, matrix);
  if (!edits.started) require_judgeable(a, matrix);
  const Reusable reusable = find_reusable(selected, folder, a.reuse);
  MatrixPlan plan = plan_matrix(matrix, folder, selected, reusable);
  plan.free_disk = free_disk_bytes(folder.path());
  for (const std::string& run : reusable.unfinished) say("not reused: " + run);
  for (const std::string& note : first_notes(a, plan)) say("note: " + note);
  if (!a.summary) {
    say_edits(edits);
    say_renamed(a, selected, folder, edits);
  }
  if (a.dry_run) return {.code = print_plan(a, plan, folder, edits), .open = {}};
  if (a.summary) {
    summarise(a, folder, matrix, edits);
    return {};
  }
  if (matrix.file.device == "cuda") gpu::require_usable(gpu::device_facts());
  require_comparable_models(a, matrix);
  require_unchanged(a, folder, edits);
  require_sealed_claims(a, folder, edits);
  Work work = work_of(plan);
  for (const Cell* cell : plan.unavailable)
    say("warning: " + cell->name + ": " + cell->unavailable);
  require_memory(matrix.file, work.planned);

  make_folders(folder.path());
  const FolderLock lock(folder.path(), "choose another --run-dir");
  prepare_folder(a, folder, matrix, edits, work);
  Round round = train_matrix(a, folder, matrix, plan, std::move(work));
  if (!edits.changed.empty()) forget_old_sets(folder, matrix);
  return round;
}

void add_seed(MatrixFile& file, int64_t seed) {
  const auto add = [&](std::vector<int64_t>& seeds) {
    if (std::count(seeds.begin(), seeds.end(), seed) == 0) seeds.push_back(seed);
  };
  add(file.seeds);
  add(file.extra_seeds);  // also of a file that has it by now: it was added because of the results
}

int run_matrix(const MatrixArguments& a) {
  check_summary(a);
  MatrixFile file = load_file(a);
  check_until_decided(a, file);
  if (!a.summary) {
    for (const std::string& note : setting_notes(file)) say("note: " + note);
  }
  for (const std::string& imported : imported_models(a, file)) say("warning: " + imported);
  const MatrixFolder folder(a.folder.empty() ? "runs/" + file.name : a.folder);
  for (const int64_t seed : recorded_extra_seeds(folder)) add_seed(file, seed);
  while (true) {
    const Round round = run_seeds(a, file, folder);
    if (round.open.empty()) return round.code;
    const int64_t seed = *std::max_element(file.seeds.begin(), file.seeds.end()) + 1;
    say("undecided: " + joined(round.open, ", ") +
        strprintf("; seed %ld is added, of at most %ld seeds", long(seed), long(*a.until_decided)));
    add_seed(file, seed);
  }
}

}  // namespace

void add_matrix_command(Commands& commands) {
  auto a = std::make_shared<MatrixArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "matrix", "train models x contracts x precisions x seeds from one file; resumable");
  sub->add_option("MATRIX", a->file, "matrix file, e.g. models/presets/matrix/cpu.yaml")
      ->required();
  add_set_option(sub, a->sets);
  sub->add_option("--run-dir", a->folder, "folder of the runs (default: runs/<name>)");
  sub->add_option("--only", a->only,
                  "train only these models or precisions, comma-separated, also patterns: 'moe-*'")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--reuse", a->reuse,
                  "folder of another matrix or run: copy its finished runs that have the same "
                  "configuration instead of training them again; may be repeated")
      ->allow_extra_args(false);
  sub->add_option("--jobs", a->jobs, "runs at the same time (default: jobs of the file)")
      ->check(whole_between(1, 1024));
  sub->add_option(
         "--threads", a->threads,
         "threads of all runs together (default: threads of the file, else all usable cores)")
      ->check(whole_between(1, 1024));
  sub->add_option("--device", a->device,
                  "cpu, cuda or auto (default: device of the file, else auto); memory is planned "
                  "for it")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  sub->add_option("--memory", a->memory,
                  "memory budget of all runs together, e.g. 8GiB (default: memory of the file, "
                  "else all of the CPU's, what is free on the GPU)");
  sub->add_flag(
      "--dry-run", a->dry_run,
      "list cells, steps, tokens, memory and order, and what --reuse accepts or refuses; train "
      "nothing");
  sub->add_option("--tflops", a->tflops,
                  "with --dry-run: hours at this training speed, TFLOP/s (docs/bench/h200.md has "
                  "measured ones)")
      ->check(above_zero())
      ->needs("--dry-run");
  sub->add_flag("--summary", a->summary,
                "print the tables of all finished runs (with --only the rows of these), write "
                "all of them to the folder, and exit");
  sub->add_option("--until-decided", a->until_decided,
                  "while claims are undecided, train one seed more, up to this number of seeds; "
                  "the tables say so")
      ->check(whole_between(2, 1000));
  sub->add_flag("--stop-on-failure", a->stop_on_failure, "start no further run after a failure");
  sub->add_flag("--fresh-changed", a->fresh_changed,
                "delete runs whose configuration was edited and train them again");
  sub->add_flag("--late-claims", a->late_claims,
                "accept claims that were edited after a run had begun; they are marked as late");
  sub->add_flag("--force", a->force,
                "train models that cannot be compared, since they see other data, contexts or "
                "targets; every table says so");
  sub->add_flag("--reuse-elsewhere", a->reuse_elsewhere,
                "with --reuse: also accept runs of another build of assay or of another device")
      ->needs("--reuse");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "A matrix file:\n"
      "  name: cpu                       # runs/cpu/; default: the file's name\n"
      "  models:                         # the others are compared with the first\n"
      "    dense: ../cpu/dense-active.yaml\n"
      "    moe: ../cpu/moe.yaml\n"
      "    moe-slow: {config: ../cpu/moe.yaml, set: {optimizer.lr: 3e-4}}\n"
      "  contracts:                      # one table each; default: the models' own\n"
      "    - {kind: activeDN, reference: dense}       # tokens per active parameter as in dense\n"
      "    - {kind: totalDN, coefficient: 20, name: total20}\n"
      "    - {kind: flops, reference: dense, branches: [0.2]}   # annealed at 20% too: branch.md\n"
      "  precisions: [auto]              # the default\n"
      "  seeds: [1, 2, 3]                # default: [1]\n"
      "  claims:\n"
      "    - {measure: val_loss, of: moe, below: dense}   # tested over the seeds\n"
      "    - {measure: val_loss, of: moe, below: dense,\n"
      "       across: [activeDN, total20]}            # and its change\n"
      "  set: {run.checkpoint_every: 100}             # applies to every model\n"
      "  jobs: 1\n"
      "  threads: 0                      # of all runs together; 0 = all usable cores\n"
      "  device: auto                    # cpu, cuda or auto\n"
      "  memory: 8GiB                    # of all runs together; default: the device's\n"
      "After a kill or an interruption, the same command resumes the matrix.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return run_matrix(*a);
  });
}

}  // namespace assay
