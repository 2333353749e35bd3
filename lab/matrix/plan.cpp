#include "lab/matrix/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/memory_units.h"
#include "data/json_text.h"
#include "engine/run/checkpoint.h"
#include "engine/run/progress.h"
#include "lab/matrix/table_contract.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

constexpr const char* kLostTelemetryHint =
    "its router measures and times are gone; to have them, delete its folder and train it again";

std::string state_text(const PlannedCell& run) {
  const CellStatus& status = run.status;
  if (!run.refused.empty()) return "NOT copied from " + run.reuse;
  if (!run.reuse.empty()) return "copied from " + run.reuse;
  if (status.unread) return std::string("unreadable: ") + status.unread->what();
  if (status.blocked) return std::string("FAILS: ") + status.blocked->what();
  const std::string text = progress_text(status);
  return status.differences.empty() ? text : text + ", EDITED";
}

// Whether an edited run is trained again from its first step.
bool begins_again(const PlannedCell& run, bool fresh_changed) {
  return fresh_changed && !run.status.differences.empty();
}

bool has_rest(const PlannedCell& run, bool fresh_changed) {
  const bool ended = run.status.state == CellState::kDone || run.status.state == CellState::kGuard;
  const bool copied = !run.reuse.empty() && run.refused.empty();
  return !copied && (!ended || begins_again(run, fresh_changed));
}

double flops_left(const PlannedCell& run, bool fresh_changed) {
  if (!has_rest(run, fresh_changed)) return 0;
  return run.cell->flops_after(begins_again(run, fresh_changed) ? 0 : run.status.kept());
}

// How much of a begun run is left is not known before it has measured its steps.
double measured_seconds_left(const PlannedCell& run, bool fresh_changed) {
  return has_rest(run, fresh_changed) ? run.cell->measured_seconds() : 0;
}

int64_t checkpoints_in(const std::string& run) {
  return int64_t(Checkpoints(run, 1, {}).all().size());
}

std::string mib_text(int64_t bytes) {
  return strprintf("%.0f", in_mib(bytes));
}

// "the auxiliary loss helps: max_load of aux-only - baseline < 0, under activeDN"
std::string claim_line(const MatrixClaim& claim) {
  std::string line = claim.name == claim.text() ? claim.name : claim.name + ": " + claim.text();
  if (!claim.contract.empty()) line += ", under " + claim.contract;
  if (!claim.precision.empty()) line += ", in " + claim.precision;
  return line;
}

std::string steps_text(const Cell& cell) {
  return cell.known_steps ? strprintf("%ld", long(cell.steps())) : "measured";
}

std::string tokens_text(const Cell& cell) {
  return cell.known_steps ? count_text(double(cell.tokens())) : "-";
}

std::string flops_text(const Cell& cell) {
  return cell.known_steps ? strprintf("%.3e", cell.flops()) : "-";
}

// ", without 2 runs whose steps are measured"; "" of none.
std::string without_measured_text(int64_t runs) {
  if (runs == 0) return "";
  return strprintf(", without %ld run%s whose steps are measured", long(runs),
                   runs == 1 ? "" : "s");
}

}  // namespace

std::string progress_text(const CellStatus& status) {
  if (status.trained) return "trained, its telemetry is lost";
  std::string text = cell_state_name(status.state);
  if (status.state != CellState::kPartial) return text;
  if (status.telemetry_lost) {
    return text + strprintf(" (resumes after step %ld, its telemetry is lost)", long(status.saved));
  }
  text += strprintf(" (step %ld", long(status.steps_done));
  if (status.saved > 0 && status.saved != status.steps_done) {
    text += strprintf(", resumes after step %ld", long(status.saved));
  }
  if (status.saved == 0 && status.steps_done > 0) text += ", begins again";
  return text + ")";
}

int64_t MatrixPlan::most_runs() const {
  const std::vector<int64_t>& seeds = matrix->file.seeds;
  const int64_t more = std::max<int64_t>(0, most_seeds - int64_t(seeds.size()));
  const int64_t of_one_seed = std::count_if(runs.begin(), runs.end(), [&](const PlannedCell& run) {
    return run.cell->seed == seeds.front();
  });
  return int64_t(runs.size()) + more * of_one_seed;
}

int64_t MatrixPlan::checkpoint_bytes_left() const {
  int64_t kept = 0, beside = 0;
  for (const PlannedCell& run : runs) {
    if (!has_rest(run, fresh_changed)) continue;
    const CheckpointDisk& disk = run.cell->disk;
    kept += disk.bytes_of(std::max<int64_t>(0, disk.kept - run.checkpoints));
    beside = std::max(beside, disk.bytes_of(disk.most - disk.kept));
  }
  return kept + beside * matrix->file.jobs;
}

MatrixPlan plan_matrix(const Matrix& matrix, const MatrixFolder& folder,
                       const std::vector<const Cell*>& selected, const Reusable& reusable) {
  MatrixPlan plan{.matrix = &matrix, .runs = {}, .unavailable = {}, .flop_per_s = 0};
  std::set<std::string> wanted;  // runs
  for (const Cell* cell : selected) {
    if (!cell->unavailable.empty()) plan.unavailable.push_back(cell);
    wanted.insert(cell->run);
  }
  for (const Cell* cell : matrix.order()) {
    if (!wanted.contains(cell->name)) continue;
    PlannedCell run;
    run.cell = cell;
    run.status = folder.status(*cell);
    if (!run.status.unread) run.checkpoints = checkpoints_in(folder.run(*cell));
    for (const ReusableRun& r : reusable.runs) {
      if (r.cell == cell && run.status.state == CellState::kWaiting) run.reuse = r.run;
    }
    for (const Cell& other : matrix.cells) {
      if (other.run == cell->name && other.name != cell->name) run.also.push_back(other.name);
    }
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

namespace {

// Runs of one model, precision and seed that differ only in what their contracts say of landings:
// "moe-steps and moe-activeDN: ...". Of the first seed, which stands for the others.
std::vector<std::string> nearly_equal_runs(const MatrixPlan& plan) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const Cell& a = *plan.runs[i].cell;
    if (a.seed != plan.matrix->file.seeds.front() || !a.known_steps) continue;
    for (size_t j = i + 1; j < plan.runs.size(); ++j) {
      const Cell& b = *plan.runs[j].cell;
      if (a.model != b.model || a.precision != b.precision || a.seed != b.seed) continue;
      const std::vector<FieldDifference> differences = matrix_differences(a.config, b.config);
      const bool only_contract =
          std::all_of(differences.begin(), differences.end(),
                      [](const FieldDifference& d) { return d.field.starts_with("contract."); });
      if (!only_contract || differences.empty()) continue;
      notes.push_back(a.name + " and " + b.name + " differ only in " + differences.front().text());
    }
  }
  return notes;
}

}  // namespace

std::string disk_text(const MatrixPlan& plan) {
  const int64_t bytes = plan.checkpoint_bytes_left();
  if (bytes == 0) return "";
  std::string text = strprintf("checkpoints: up to %s MiB more on disk", mib_text(bytes).c_str());
  if (!plan.free_disk) return text;
  return text + strprintf(", which has %s%s MiB free", bytes > *plan.free_disk ? "only " : "",
                          mib_text(*plan.free_disk).c_str());
}

std::string plan_text(const MatrixPlan& plan) {
  const MatrixFile& file = plan.matrix->file;
  std::string text = strprintf("matrix %s: %zu cells, %zu runs\n", file.name.c_str(),
                               plan.matrix->cells.size(), plan.runs.size());
  for (const MatrixContract& contract : file.contracts) {
    text += "  contract " + contract.name + ": " + contract_text(contract, *plan.matrix) + "\n";
  }
  for (const MatrixClaim& claim : file.claims) text += "  claim " + claim_line(claim) + "\n";
  size_t width = 4;
  for (const Cell& cell : plan.matrix->cells) width = std::max(width, cell.name.size());
  text += strprintf("\n  #  %-*s  %8s  %9s  %10s  %7s  %s\n", int(width), "cell", "steps", "tokens",
                    "FLOPs", "MiB", "state");
  double flops = 0, separate = 0, left = 0, seconds = 0, seconds_left = 0;
  int64_t tokens = 0, largest = 0, number = 0, refused = 0, measured = 0;
  for (const PlannedCell& run : plan.runs) {
    const Cell& cell = *run.cell;
    text += strprintf("%3ld  %-*s  %8s  %9s  %10s  %7s  %s\n", long(++number), int(width),
                      cell.name.c_str(), steps_text(cell).c_str(), tokens_text(cell).c_str(),
                      flops_text(cell).c_str(), mib_text(cell.memory_bytes).c_str(),
                      state_text(run).c_str());
    if (cell.memory_bytes > file.memory_bytes) text += "     exceeds the memory budget\n";
    for (const std::string& also : run.also) text += "     = " + also + "\n";
    if (run.status.telemetry_lost) text += "     hint: " + std::string(kLostTelemetryHint) + "\n";
    if (run.status.blocked && run.reuse.empty())
      text += "     hint: " + run.status.blocked->hint() + "\n";
    if (!run.refused.empty()) {
      text += strprintf("     refused: %s\n     hint: %s\n", run.refused.c_str(), run.hint.c_str());
      ++refused;
    }
    flops += cell.flops_after(0);
    separate += cell.flops();
    left += flops_left(run, plan.fresh_changed);
    measured += cell.known_steps ? 0 : 1;
    seconds += cell.measured_seconds();
    seconds_left += measured_seconds_left(run, plan.fresh_changed);
    tokens += cell.tokens() - cell.branch_step * cell.config.run.batch_tokens;
    largest = std::max(largest, cell.memory_bytes);
  }
  for (const Cell* cell : plan.unavailable) {
    text += strprintf("  -  %-*s  %8s  %9s  %10s  %7s  %s\n", int(width), cell->name.c_str(),
                      steps_text(*cell).c_str(), tokens_text(*cell).c_str(),
                      flops_text(*cell).c_str(), "-", cell->unavailable.c_str());
  }
  text += strprintf("\n%s tokens, %.3e FLOPs, %.3e of them left",
                    count_text(double(tokens)).c_str(), flops, left);
  text += without_measured_text(measured) + "; ";
  text += strprintf(
      "%ld at a time%s, %ld threads each; the largest run needs %s of %s MiB\n", long(file.jobs),
      file.device == "auto" ? "" : (" on " + file.device).c_str(),
      plan.matrix->cells.empty() ? 0L : long(plan.matrix->cells.front().config.run.threads),
      mib_text(largest).c_str(), mib_text(file.memory_bytes).c_str());
  if (const std::string disk = disk_text(plan); !disk.empty()) text += disk + "\n";
  if (separate > flops) {
    text += strprintf("branches: %.3e FLOPs instead of %.3e of separate runs, %.0f%%\n", flops,
                      separate, 100 * flops / separate);
  }
  if (plan.most_seeds > 0) {
    text += strprintf("at most %ld runs: claims that stay undecided add seeds, up to %ld\n",
                      long(plan.most_runs()), long(plan.most_seeds));
  }
  if (plan.flop_per_s > 0) {
    text +=
        strprintf("at %g TFLOP/s: %.2f hours, %.2f of them left; without evaluations and saves\n",
                  plan.flop_per_s / 1e12, (flops / plan.flop_per_s + seconds) / 3600,
                  (left / plan.flop_per_s + seconds_left) / 3600);
  }
  for (const std::string& note : nearly_equal_runs(plan)) {
    text += "note: " + note + "; with the same landings they would be trained once\n";
  }
  const std::string difference = different_data(*plan.matrix);
  if (!difference.empty()) text += "refused without --force: " + difference + "\n";
  if (refused > 0) {
    text += strprintf("refused: %ld runs of --reuse cannot be copied; nothing would be trained\n",
                      long(refused));
  }
  return text;
}

std::string plan_json(const MatrixPlan& plan) {
  ordered_json j;
  j["matrix"] = plan.matrix->file.name;
  j["cells"] = plan.matrix->cells.size();
  j["jobs"] = plan.matrix->file.jobs;
  j["device"] = plan.matrix->file.device;
  j["memory_bytes"] = plan.matrix->file.memory_bytes;
  j["checkpoint_bytes_left"] = plan.checkpoint_bytes_left();
  j["free_disk_bytes"] = plan.free_disk ? ordered_json(*plan.free_disk) : ordered_json();
  j["runs"] = ordered_json::array();
  const auto cell_json = [](const Cell& cell) {
    ordered_json c;
    c["cell"] = cell.name;
    c["model"] = cell.model;
    c["contract"] = cell.contract;
    c["precision"] = cell.precision;
    c["seed"] = cell.seed;
    c["steps"] = cell.known_steps ? ordered_json(cell.steps()) : ordered_json();
    c["tokens"] = cell.known_steps ? ordered_json(cell.tokens()) : ordered_json();
    c["flops"] = cell.known_steps ? ordered_json(cell.flops()) : ordered_json();
    if (!cell.trunk.empty()) {
      c["branch_of"] = cell.trunk;
      c["branch_step"] = cell.branch_step;
    }
    return c;
  };
  for (const PlannedCell& run : plan.runs) {
    ordered_json c = cell_json(*run.cell);
    c["hours"] = ordered_json();
    if (!run.cell->known_steps) c["hours"] = run.cell->measured_seconds() / 3600;
    if (run.cell->known_steps && plan.flop_per_s > 0) {
      c["hours"] = run.cell->flops_after(0) / plan.flop_per_s / 3600;
    }
    c["memory_bytes"] = run.cell->memory_bytes;
    c["checkpoint_bytes"] = run.cell->disk.each;
    c["kept_checkpoints"] = run.cell->disk.kept;
    c["most_checkpoints"] = run.cell->disk.most;
    c["threads"] = run.cell->config.run.threads;
    c["state"] = cell_state_name(run.status.state);
    c["steps_done"] = run.status.steps_done;
    if (run.status.state == CellState::kPartial) {
      c["resumes_after"] = run.status.saved;
      c["telemetry_lost"] = run.status.telemetry_lost;
    }
    if (run.status.blocked) c["blocked"] = run.status.blocked->what();
    c["edited"] = nlohmann::ordered_json::array();
    for (const FieldDifference& one : run.status.differences) c["edited"].push_back(one.text());
    c["also"] = run.also;
    c["reuse"] = run.reuse.empty() ? ordered_json() : ordered_json(run.reuse);
    c["refused"] = run.refused.empty() ? ordered_json() : ordered_json(run.refused);
    j["runs"].push_back(c);
  }
  if (plan.most_seeds > 0) j["most_runs"] = plan.most_runs();
  j["refused"] = plan.refused;
  j["claims"] = ordered_json::array();
  for (const MatrixClaim& claim : plan.matrix->file.claims) {
    j["claims"].push_back(claim_to_json(claim));
  }
  j["unavailable"] = ordered_json::array();
  for (const Cell* cell : plan.unavailable) {
    ordered_json c = cell_json(*cell);
    c["why"] = cell->unavailable;
    j["unavailable"].push_back(c);
  }
  return json_text(j, 2) + "\n";
}

}  // namespace assay
