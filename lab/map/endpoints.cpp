#include "lab/map/endpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "base/read_failed.h"
#include "engine/config/schedule.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "lab/compare/compare.h"
#include "lab/dissect/used.h"
#include "lab/matrix/folder.h"
#include "lab/runs/confounds.h"
#include "lab/runs/core_questions.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/first_weights.h"
#include "lab/runs/run_folders.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr double kSameWarmdown = 0.02;  // shares of the steps that are called equal

fs::path whole(const std::string& path) {
  std::error_code ignored;
  const fs::path canonical = fs::weakly_canonical(path, ignored);
  return canonical.has_filename() ? canonical : canonical.parent_path();
}

// The models of matrices by the folder of their runs.
class MatrixModels {
 public:
  // "" for a run of no matrix.
  std::string name_of(const std::string& run) {
    const fs::path path = whole(run);
    const auto& names = of_folder(path.parent_path());
    const auto found = names.find(path.filename().string());
    return found == names.end() ? "" : found->second;
  }

  // Cells of a matrix without a run, which no folder shows.
  void add_not_begun(const std::string& path, std::vector<SkippedRun>& left_out) {
    of_folder(whole(path));
    for (const auto& [folder, reason] : not_begun_[whole(path)]) {
      left_out.push_back({.run = (fs::path(path) / folder).string(), .reason = reason});
    }
  }

  std::vector<std::string> notes;

 private:
  const std::map<std::string, std::string>& of_folder(const fs::path& folder) {
    const auto [found, is_new] = names_.try_emplace(folder);
    std::map<std::string, std::string>& names = found->second;
    if (!is_new || !is_matrix_folder(folder.string())) return names;
    const auto problem = problem_of([&] {
      const RecordedMatrix recorded = read_matrix_folder(folder.string());
      for (const Cell& cell : recorded.matrix.cells) {
        const std::string precision = cell.precision == "auto" ? "" : " " + cell.precision;
        names.try_emplace(cell.run, cell.model + precision);
        if (cell.run != cell.name || fs::exists(folder / cell.run)) continue;
        not_begun_[folder].emplace_back(
            cell.name, cell.unavailable.empty() ? "has not begun" : cell.unavailable);
      }
    });
    if (problem) {
      notes.push_back(std::string(problem->what()) +
                      ": its runs are named without it, and cells that have not begun are unknown");
    }
    return names;
  }

  std::map<fs::path, std::map<std::string, std::string>> names_;
  std::map<fs::path, std::vector<std::pair<std::string, std::string>>> not_begun_;
};

// Why the run is no endpoint; "" if it is one.
std::string not_an_endpoint(const RunRecord& run) {
  const auto at = [&] {
    return strprintf("at step %ld of %ld", long(run.steps_done), long(run.config.run.steps));
  };
  if (stopped_by_guard(run.end)) return "stopped by its guard (" + run.end + ") " + at();
  if (run.end == "target_loss") {
    return "stopped at its target loss " + at() + ": it has not warmed down";
  }
  if (!run.finished() || run.steps_done < run.config.run.steps) return "not finished: " + at();
  return "";
}

struct Measured {
  double value = 0;
  std::string missing;
};

Measured loss_of(const RunRecord& run) {
  const auto last = run.last_val();
  if (!last || last->step != run.steps_done) return {.missing = "no validation at its last step"};
  if (!std::isfinite(last->value)) return {.missing = "its last loss is not finite"};
  return {.value = last->value, .missing = ""};
}

// Only the score over all tasks and rows: a part of them is another number in every run.
Measured core_of(const RunRecord& run) {
  const auto& score = run.core;
  if (!score) return {.missing = "not scored on CORE"};
  if (score->name != "core") return {.missing = "scored on a part of CORE, " + score->name};
  if (score->step != run.steps_done) {
    return {.missing = strprintf("its last CORE is of step %ld of %ld", long(score->step),
                                 long(run.steps_done))};
  }
  return {.value = score->value, .missing = ""};
}

Spent per_used_parameter(const RunRecord& run, std::string& text) {
  // Every token uses all parameters where no block has experts.
  if (moe_blocks(run.config.model) == 0)
    return {.value = double(run.tokens) / double(run.audit.total), .missing = ""};
  std::optional<UsedFigures> used;
  if (const auto problem = problem_of([&] { used = read_used(run.path); }))
    return {.value = {}, .missing = problem->what()};
  if (!used)
    return {.value = {},
            .missing = "no " + std::string(kUsedFile) + ", which assay dissect used writes"};
  if (used->step != run.steps_done) {
    return {.value = {},
            .missing = strprintf("%s is of step %ld, not %ld", kUsedFile, long(used->step),
                                 long(run.steps_done))};
  }
  text = used->text_sha256 + " " + std::to_string(used->tokens);
  return {.value = double(run.tokens) / double(used->p_used), .missing = ""};
}

Spent logged(std::optional<double> value) {
  if (value && *value > 0) return {.value = value, .missing = ""};
  return {.value = {}, .missing = "not logged"};
}

// Resident memory of the host's process. What a GPU held is in no figure of a run.
Spent peak_memory_of(const RunRecord& run, const TelemetryReader& telemetry) {
  if (run.device.find("cuda") != std::string::npos) {
    return {.value = {}, .missing = "only the host's memory was logged"};
  }
  const auto peak = telemetry.last_scalar("peak_rss_bytes");
  return logged(peak ? std::optional(peak->value) : std::nullopt);
}

// Of all counters that the run had to its end. counted: which.
Spent energy_of(const RunRecord& run, const TelemetryReader& telemetry, std::string& counted) {
  double joules = 0;
  for (const auto& [scalar, name] :
       {std::pair("cpu_joules", "CPU"), std::pair("gpu_joules", "GPU")}) {
    const auto last = telemetry.last_scalar(scalar);
    if (!last || last->step != run.steps_done) continue;
    joules += last->value;
    counted += (counted.empty() ? "" : " and ") + std::string(name);
  }
  if (counted.empty()) return {.value = {}, .missing = "no counter of energy was read"};
  return joules > 0 ? Spent{.value = joules, .missing = ""}
                    : Spent{.value = {}, .missing = "the counters read no energy"};
}

Endpoint endpoint_of(const RunRecord& run, double value) {
  Endpoint e{.run = run.path,
             .seed = run.config.run.seed,
             .steps = run.steps_done,
             .value = value,
             .cost = {},
             .device = run.device + (run.cpu.empty() ? "" : ", " + run.cpu),
             .machine = machine_of(run),
             .used_text = {},
             .energy_of = {}};
  const auto set = [&](CostAxis axis, Spent cost) { e.cost[size_t(axis)] = std::move(cost); };
  const double tokens = double(run.tokens);
  set(CostAxis::kTokens, logged(tokens));
  set(CostAxis::kPActive, logged(tokens / double(run.audit.active)));
  set(CostAxis::kPTotal, logged(tokens / double(run.audit.total)));
  set(CostAxis::kPUsed, per_used_parameter(run, e.used_text));
  set(CostAxis::kFlops, logged(run.flops_at(run.steps_done)));
  set(CostAxis::kSeconds, logged(run.seconds_at(run.steps_done)));
  const TelemetryReader telemetry(telemetry_file(run.path));
  set(CostAxis::kMemory, peak_memory_of(run, telemetry));
  set(CostAxis::kJoules, energy_of(run, telemetry, e.energy_of));
  return e;
}

std::vector<RunRecord> runs_of(const std::vector<SeedGroup>& groups) {
  std::vector<RunRecord> runs;
  for (const SeedGroup& group : groups) {
    for (const RunRecord* run : group.runs) runs.push_back(*run);
  }
  return runs;
}

// Runs of imported weights among others are no endpoints: no axis has what those weights cost.
void leave_out_imported(std::vector<SeedGroup>& groups, EndpointSet& set) {
  const std::vector<RunRecord> runs = runs_of(groups);
  if (other_first_weights(runs).empty()) {
    if (!runs.empty() && began_from_imported(runs.front())) {
      set.notes.push_back(std::string("all runs began from the same imported weights (") +
                          kImportedFile + "): what those cost is not counted");
    }
    return;
  }
  for (SeedGroup& group : groups) {
    std::erase_if(group.runs, [&](const RunRecord* run) {
      if (!began_from_imported(*run)) return false;
      set.left_out.push_back({.run = run->path,
                              .reason = std::string("began from imported weights (") +
                                        kImportedFile +
                                        "), and others here did not begin from those"});
      return true;
    });
  }
  std::erase_if(groups, [](const SeedGroup& group) { return group.runs.empty(); });
}

void require_same_core_questions(std::span<const RunRecord> runs) {
  std::vector<const RunRecord*> all;
  for (const RunRecord& run : runs) all.push_back(&run);
  const std::string difference = different_core_questions(all, &RunRecord::path);
  if (difference.empty()) return;
  throw UserError(
      "CORE of the runs is not comparable: " + difference,
      "leave some out, or score all with one eval.core.bundle and eval.core.max_tokens");
}

MapModel model_of(const SeedGroup& group, const std::map<const RunRecord*, double>& values,
                  std::vector<SkippedRun>& left_out) {
  MapModel model{.name = group.name,
                 .p_total = group.audit().total,
                 .p_active = group.audit().active,
                 .flops_per_token = group.audit().flops_per_token,
                 .endpoints = {}};
  std::map<std::pair<int64_t, int64_t>, std::string> taken;  // seed, steps -> run
  for (const RunRecord* run : group.runs) {
    const auto [found, is_new] =
        taken.try_emplace({run->config.run.seed, run->steps_done}, run->path);
    if (!is_new) {
      left_out.push_back({.run = run->path,
                          .reason = strprintf("has the model, the seed and the %ld steps of ",
                                              long(run->steps_done)) +
                                    found->second});
      continue;
    }
    model.endpoints.push_back(endpoint_of(*run, values.at(run)));
  }
  std::sort(model.endpoints.begin(), model.endpoints.end(),
            [](const Endpoint& a, const Endpoint& b) {
              return std::pair(a.seed, a.steps) < std::pair(b.seed, b.steps);
            });
  return model;
}

// Empties the axis where its costs were not all measured in one way, which `way` tells ("": not at
// all).
void require_one_way(std::vector<MapModel>& models, CostAxis axis, std::string Endpoint::*way,
                     const char* otherwise) {
  std::set<std::string> ways;
  for (const MapModel& model : models) {
    for (const Endpoint& e : model.endpoints) {
      if (!(e.*way).empty()) ways.insert(e.*way);
    }
  }
  if (ways.size() < 2) return;
  for (MapModel& model : models) {
    for (Endpoint& e : model.endpoints) {
      if (!(e.*way).empty()) e.cost[size_t(axis)] = {.value = {}, .missing = otherwise};
    }
  }
}

// Memory is no axis with pairs that could say why it is missing.
void note_missing_memory(const MapModel& model, std::vector<std::string>& notes) {
  for (const Endpoint& e : model.endpoints) {
    const Spent& memory = e.of(CostAxis::kMemory);
    if (memory.value) continue;
    notes.push_back(model.name + ": no peak memory of " + e.run + ": " + memory.missing);
    return;
  }
}

void note_warmdowns(const SeedGroup& group, std::vector<std::string>& notes) {
  double low = 1, high = 0;
  for (const RunRecord* run : group.runs) {
    const Schedule schedule = make_schedule(run->config);
    const double share = double(schedule.warmdown) / double(schedule.steps);
    low = std::min(low, share);
    high = std::max(high, share);
  }
  if (high - low <= kSameWarmdown) return;
  notes.push_back(
      strprintf("%s: the warm-down is %.0f%% of the steps in some endpoints and %.0f%% "
                "in others, which is a difference between them too",
                group.name.c_str(), 100 * low, 100 * high));
}

void note_routers(const SeedGroup& group, std::vector<std::string>& notes) {
  for (const RouterState state : {RouterState::kCollapsed, RouterState::kRestless}) {
    const auto count = std::count_if(group.runs.begin(), group.runs.end(), [&](const auto* run) {
      return run->health && router_state(*run->health) == state;
    });
    if (count == 0) continue;
    notes.push_back(strprintf("%s: the routers of %ld of its %zu endpoints are %s",
                              group.name.c_str(), long(count), group.runs.size(),
                              state_word(state).c_str()));
  }
}

std::string names_of(const std::vector<SeedGroup>& groups) {
  std::string names;
  for (const SeedGroup& group : groups) names += (names.empty() ? "" : ", ") + group.name;
  return names;
}

// Those that `only` names, in its order.
std::vector<SeedGroup> chosen(std::vector<SeedGroup> groups, const std::vector<std::string>& only) {
  if (only.empty()) return groups;
  std::vector<SeedGroup> found;
  for (const std::string& name : only) {
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const SeedGroup& g) { return g.name == name; });
    if (group == groups.end()) {
      throw UserError("there is no model " + name, "the runs have " + names_of(groups));
    }
    for (const SeedGroup& other : found) {
      if (other.name != name) continue;
      throw UserError("the model " + name + " is named twice", "name each model once");
    }
    found.push_back(*group);
  }
  return found;
}

// From the longest run of each model, as its shorter ones have schedules of their own. Differences
// are taken between shared seeds, and passes over the data grow along every axis.
std::vector<Confound> map_confounds(std::vector<SeedGroup> groups) {
  for (SeedGroup& group : groups) {
    group.runs = {*std::max_element(
        group.runs.begin(), group.runs.end(),
        [](const auto* a, const auto* b) { return a->steps_done < b->steps_done; })};
  }
  std::vector<Confound> found = run_confounds(groups);
  std::erase_if(found, [](const Confound& c) { return c.name == "seeds" || c.name == "passes"; });
  return found;
}

std::string first_reasons(const std::vector<SkippedRun>& left_out) {
  if (left_out.empty()) return "";
  const std::string more =
      left_out.size() > 1 ? strprintf(" (and %zu more)", left_out.size() - 1) : std::string();
  return "left out: " + left_out.front().run + ": " + left_out.front().reason + more;
}

}  // namespace

const std::array<AxisWords, kCostAxes>& cost_axes() {
  static const std::array<AxisWords, kCostAxes> axes = {{
      {CostAxis::kTokens, "tokens", "training tokens", "tokens"},
      {CostAxis::kPActive, "p_active", "tokens per active parameter", ""},
      {CostAxis::kPTotal, "p_total", "tokens per stored parameter", ""},
      {CostAxis::kPUsed, "p_used", "tokens per used parameter", ""},
      {CostAxis::kFlops, "flops", "training FLOPs", "FLOPs"},
      {CostAxis::kSeconds, "seconds", "seconds of training", "s"},
      {CostAxis::kMemory, "memory", "peak memory", "bytes"},
      {CostAxis::kJoules, "joules", "energy", "J"},
  }};
  return axes;
}

const AxisWords& words_of(CostAxis axis) {
  return cost_axes()[size_t(axis)];
}

std::vector<int64_t> MapModel::seeds() const {
  std::set<int64_t> seeds;
  for (const Endpoint& e : endpoints) seeds.insert(e.seed);
  return {seeds.begin(), seeds.end()};
}

EndpointSet collect_endpoints(const std::vector<std::string>& paths, MapMeasure measure,
                              const std::vector<std::string>& only) {
  EndpointSet set;
  MatrixModels matrices;
  std::vector<RunRecord> runs;
  std::vector<double> measured;
  std::set<fs::path> seen;
  for (const std::string& path : runs_in(paths)) {
    if (!seen.insert(whole(path)).second) continue;  // a run counts once, however it is named
    const auto problem = problem_of([&] {
      RunRecord run = read_run(path);
      std::string reason = not_an_endpoint(run);
      const Measured m = !reason.empty()                   ? Measured{}
                         : measure == MapMeasure::kValLoss ? loss_of(run)
                                                           : core_of(run);
      if (reason.empty()) reason = m.missing;
      if (!reason.empty()) {
        set.left_out.push_back({.run = path, .reason = reason});
        return;
      }
      runs.push_back(std::move(run));
      measured.push_back(m.value);
    });
    if (problem) set.left_out.push_back({.run = path, .reason = problem->what(), .unread = true});
  }
  for (const std::string& path : paths) matrices.add_not_begun(path, set.left_out);

  std::map<const RunRecord*, double> values;
  for (size_t i = 0; i < runs.size(); ++i) values[&runs[i]] = measured[i];
  const std::vector<SeedGroup> all = group_runs(
      runs,
      [&](const RunRecord& run) {
        return matrices.name_of(run.path) + "\n" + recipe_identity(run);
      },
      [&](const RunRecord& run) { return matrices.name_of(run.path); });
  set.notes.insert(set.notes.end(), matrices.notes.begin(), matrices.notes.end());
  std::vector<SeedGroup> groups;
  if (!all.empty()) groups = chosen(all, only);
  const size_t left_out = set.left_out.size();
  leave_out_imported(groups, set);
  if (groups.empty()) {
    throw UserError("none of the runs is an endpoint", first_reasons(set.left_out));
  }
  const std::vector<SkippedRun> imported(set.left_out.begin() + std::ptrdiff_t(left_out),
                                         set.left_out.end());
  if (groups.size() < 2) {
    throw UserError(
        strprintf("the %zu endpoints are all of one model, ", groups.front().runs.size()) +
            groups.front().name,
        !imported.empty() ? first_reasons(imported)
        : set.left_out.empty() || !only.empty()
            ? "give runs of two models or more; the runs have " + names_of(all)
            : first_reasons(set.left_out));
  }
  const std::vector<RunRecord> used = runs_of(groups);
  refuse_incomparable(incomparable_differences(used),
                      "leave some out: a loss can be compared on one text, tokenizer and length");
  for (const SeedGroup& group : groups) {
    refuse_incomparable(training_differences(runs_of({group})),
                        "leave some out: the curve of a model is that of one training text");
  }
  set.confounds = map_confounds(groups);
  if (measure == MapMeasure::kCore) require_same_core_questions(used);
  for (const RunRecord& run : used) {
    const std::string leak = trained_validation_text(run);
    if (!leak.empty()) set.notes.push_back(leak);
  }
  for (const SeedGroup& group : groups) {
    set.models.push_back(model_of(group, values, set.left_out));
    note_missing_memory(set.models.back(), set.notes);
    note_warmdowns(group, set.notes);
    note_routers(group, set.notes);
  }
  // A P_used depends on how much text was read.
  require_one_way(set.models, CostAxis::kPUsed, &Endpoint::used_text,
                  "P_used was measured on different texts");
  require_one_way(set.models, CostAxis::kJoules, &Endpoint::energy_of,
                  "the energy of some is the CPU's, of others the GPU's or both");
  return set;
}

}  // namespace assay
