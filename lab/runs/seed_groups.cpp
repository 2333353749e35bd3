#include "lab/runs/seed_groups.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include "base/check.h"
#include "engine/config/fields.h"
#include "engine/run/run.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/run_labels.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// Fields that do not change the run's numbers, and fields that the program fills in itself.
const std::set<std::string> kWithoutEffect = {"run.seed",
                                              "run.threads",
                                              "run.checkpoint_every",
                                              "run.checkpoint_minutes",
                                              "run.keep_checkpoints",
                                              "run.milestone_every",
                                              "run.keep_best",
                                              "run.log_every",
                                              "run.print_every",
                                              "eval.at_start",
                                              "data.cache",
                                              "data.max_epochs",
                                              "data.reference",
                                              "data.check_tokenizer",
                                              "contract.step_seconds",
                                              "contract.derived_from"};
// Under a contract of seconds these follow from the measured speed of each seed.
const std::set<std::string> kMeasuredUnderSeconds = {"run.steps", "contract.horizon"};
// Beside those above, what differs between endpoints of one model; a section by its point.
const char* const kOfEndpoint[] = {"run.steps",         "run.target_loss",
                                   "schedule.warmup",   "schedule.warmup_fraction",
                                   "schedule.warmdown", "schedule.warmdown_fraction",
                                   "data.max_epochs",   "data.reference",
                                   "contract.",         "eval.",
                                   "telemetry."};

// Changes only where a run ends, so it counts where it ended one.
constexpr const char* kRule = "telemetry.collapse_stop";

bool is_of_rule(const std::string& path) {
  return path == kRule || path.starts_with(std::string(kRule) + ".");
}

bool is_of_endpoint(const std::string& path) {
  return std::any_of(std::begin(kOfEndpoint), std::end(kOfEndpoint), [&](const std::string& own) {
    return own.back() == '.' ? path.starts_with(own) : path == own;
  });
}

std::string compared_value(const FieldRow& field) {
  return field.check.path ? file_names(field.value) : field.value;
}

std::string line_of(const FieldRow& field) {
  return field.path + "=" + compared_value(field) + "\n";
}

// Of the ranks only the parts of the batch change numbers; 0 are 1, and `auto` products simulated,
// until a run resolves them.
Config as_resolved(Config config) {
  config.parallel = {.parts = config.parallel.batch_parts()};
  if (config.precision.products == ProductsMode::kAuto)
    config.precision.products = ProductsMode::kSimulated;
  return config;
}

std::vector<FieldRow> rows_without(const Config& config,
                                   const std::function<bool(const std::string& path)>& without) {
  std::vector<FieldRow> rows = config_fields(as_resolved(config));
  std::erase_if(rows, [&](const FieldRow& row) {
    return kWithoutEffect.contains(row.path) || is_of_rule(row.path) || without(row.path);
  });
  return rows;
}

std::string identity_of(const std::vector<FieldRow>& rows) {
  std::string identity;
  for (const FieldRow& row : rows) identity += line_of(row);
  return identity;
}

std::vector<FieldRow> model_rows(const Config& config) {
  const bool by_seconds = config.contract.kind == ContractKind::kSeconds;
  return rows_without(config, [&](const std::string& path) {
    return by_seconds && kMeasuredUnderSeconds.contains(path);
  });
}

std::string lines_of(const Config& config, bool (*is_wanted)(const std::string& path)) {
  std::string lines;
  for (const FieldRow& field : config_fields(config)) {
    if (is_wanted(field.path)) lines += line_of(field);
  }
  return lines;
}

// What changes the numbers of no run, or of few: two runs of one seed may differ in it.
bool is_limit(const std::string& path) {
  return is_of_rule(path) || path == "data.max_epochs" || path == "data.reference" ||
         path == "data.check_tokenizer" || path.starts_with("parallel.");
}

// "" of a run that began from its seed.
std::string imported_line(const RunRecord& run) {
  return run.imported_sha256.empty() ? "" : "imported=" + run.imported_sha256 + "\n";
}

std::string common_start(const std::string& a, const std::string& b) {
  return a.substr(0, std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// The folder of the run, without those before it that its name may have.
std::string own_name(const RunRecord& run) {
  return fs::path(run.name).filename().string();
}

fs::path folder_of(const RunRecord& run) {
  const fs::path path = fs::weakly_canonical(run.path);
  return path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
}

// Where a folder named as the runs are named would be: .../moe of .../moe-seed1, .../moe-seed2;
// .../moe-64 of .../moe-64, .../moe-64-seed2. Runs named only by their seed take the name of the
// folder they are in.
fs::path shared_path(const std::vector<const RunRecord*>& runs) {
  const fs::path folder = folder_of(*runs.front());
  std::string name = own_name(*runs.front());
  if (runs.size() == 1) return folder / name;
  for (const RunRecord* run : runs) name = common_start(name, own_name(*run));
  for (const RunRecord* run : runs)
    if (own_name(*run) == name) return folder / name;
  name = std::regex_replace(name, std::regex("(^|[-_.]+)(seed|s)?[-_.]*[0-9]*$"), "");
  if (!name.empty()) return folder / name;
  return folder.has_filename() ? folder : folder / own_name(*runs.front());
}

// Of groups that take the name of one folder, as the names of their runs have nothing in common:
// "alpha and 2 more" of alpha, beta and delta.
void name_after_first_runs(std::vector<SeedGroup>& groups, std::vector<fs::path>& paths) {
  std::map<fs::path, int> count;
  for (const fs::path& path : paths) ++count[path];
  for (size_t i = 0; i < groups.size(); ++i) {
    const RunRecord& first = *groups[i].runs.front();
    if (paths[i].empty() || count.at(paths[i]) < 2 || paths[i] != folder_of(first)) continue;
    groups[i].name = own_name(first) + strprintf(" and %zu more", groups[i].runs.size() - 1);
    paths[i] /= groups[i].name;
  }
}

// Groups of the same name take the folders before it; those of one folder are numbered. paths: of
// each group; "" for a name that was given, which has none.
void make_names_differ(std::vector<SeedGroup>& groups, const std::vector<fs::path>& paths) {
  std::map<std::string, std::vector<size_t>> same;
  for (size_t i = 0; i < groups.size(); ++i) same[groups[i].name].push_back(i);
  for (const auto& [name, places] : same) {
    std::set<fs::path> different;
    for (const size_t i : places) different.insert(paths[i]);
    if (different.size() < places.size() || different.contains("")) continue;
    std::vector<fs::path> of_name;
    for (const size_t i : places) of_name.push_back(paths[i]);
    const std::vector<std::string> labels = distinct_labels(of_name);
    for (size_t k = 0; k < places.size(); ++k) groups[places[k]].name = labels[k];
  }
  std::map<std::string, int> seen;
  for (SeedGroup& group : groups) {
    const int again = ++seen[group.name];
    if (again > 1) group.name += strprintf(" (%d)", again);
  }
}

void require_different_seeds(const SeedGroup& group) {
  for (size_t i = 1; i < group.runs.size(); ++i) {
    const RunRecord &a = *group.runs[i - 1], &b = *group.runs[i];
    if (a.config.run.seed != b.config.run.seed) continue;
    throw UserError(strprintf("%s and %s are the same configuration with the same seed %ld",
                              a.path.c_str(), b.path.c_str(), long(a.config.run.seed)),
                    "give one of them: counted twice, it would narrow every interval");
  }
}

}  // namespace

std::vector<RunRecord> read_runs(const std::vector<std::string>& paths) {
  const std::vector<std::string> labels = run_labels(paths);
  std::vector<RunRecord> runs;
  for (size_t i = 0; i < paths.size(); ++i) {
    runs.push_back(read_run(paths[i]));
    runs.back().name = labels[i];
  }
  return runs;
}

std::string model_identity(const Config& config) {
  return identity_of(model_rows(config));
}

std::string model_identity(const RunRecord& run) {
  return model_identity(run.config) + imported_line(run);
}

std::vector<std::string> model_differences(const Config& a, const Config& b) {
  const auto fields_of = [](const Config& config) {
    std::map<std::string, std::string> fields;
    for (const FieldRow& row : model_rows(config)) fields[row.path] = compared_value(row);
    return fields;
  };
  const std::map<std::string, std::string> of_a = fields_of(a), of_b = fields_of(b);
  std::set<std::string> names;
  for (const auto& [name, value] : of_a) {
    const auto other = of_b.find(name);
    if (other == of_b.end() || other->second != value) names.insert(name);
  }
  for (const auto& [name, value] : of_b) {
    if (!of_a.contains(name)) names.insert(name);
  }
  return {names.begin(), names.end()};
}

std::string recipe_identity(const Config& config) {
  return identity_of(rows_without(config, is_of_endpoint));
}

std::string recipe_identity(const RunRecord& run) {
  return recipe_identity(run.config) + imported_line(run);
}

std::vector<SeedGroup> group_by_model(std::span<const RunRecord> runs) {
  std::set<std::string> stopped;  // models of which telemetry.collapse_stop ended a run
  std::set<std::string> twice;    // models that have a seed twice, under other limits
  std::map<std::pair<std::string, int64_t>, std::string> limits;  // by model and seed
  std::map<std::string, std::set<std::string>> data;              // recorded ones, by model
  for (const RunRecord& run : runs) {
    if (std::string own = data_identity(run); !own.empty()) data[model_identity(run)].insert(own);
  }
  // Files of the same names may hold other texts. A run that does not record them tells nothing.
  const auto model_of = [&](const RunRecord& run) {
    const std::string model = model_identity(run);
    return data[model].size() > 1 ? model + data_identity(run) : model;
  };
  for (const RunRecord& run : runs) {
    const std::string model = model_of(run), mine = lines_of(run.config, is_limit);
    if (run.end == run_end_name(RunEnd::kCollapseStop)) stopped.insert(model);
    const auto first = limits.try_emplace({model, run.config.run.seed}, mine).first;
    if (first->second != mine) twice.insert(model);
  }
  const auto identity = [&](const RunRecord& run) {
    const std::string model = model_of(run);
    if (twice.contains(model)) return model + lines_of(run.config, is_limit);
    return stopped.contains(model) ? model + lines_of(run.config, is_of_rule) : model;
  };
  return group_runs(runs, identity, [](const RunRecord&) { return std::string(); });
}

std::vector<SeedGroup> group_runs(std::span<const RunRecord> runs, const RunText& identity,
                                  const RunText& given_name) {
  std::map<std::string, size_t> place;
  std::vector<SeedGroup> groups;
  for (const RunRecord& run : runs) {
    const auto [found, is_new] = place.try_emplace(identity(run), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].runs.push_back(&run);
  }
  std::vector<fs::path> paths;
  for (SeedGroup& group : groups) {
    std::stable_sort(group.runs.begin(), group.runs.end(),
                     [](const RunRecord* a, const RunRecord* b) {
                       return a->config.run.seed < b->config.run.seed;
                     });
    group.name = given_name(*group.runs.front());
    paths.push_back(group.name.empty() ? shared_path(group.runs) : "");
    if (group.name.empty()) group.name = paths.back().filename().string();
  }
  name_after_first_runs(groups, paths);
  make_names_differ(groups, paths);
  return groups;
}

std::vector<SeedGroup> group_by_seed(std::span<const RunRecord> runs) {
  std::vector<SeedGroup> groups = group_by_model(runs);
  for (const SeedGroup& group : groups) require_different_seeds(group);
  return groups;
}

SeedValues values_of(const SeedGroup& group, const Measure& measure) {
  SeedValues values;
  for (const RunRecord* run : group.runs) {
    const std::optional<double> value = measure(*run);
    if (!value) continue;
    if (!std::isfinite(*value))
      throw UserError(
          strprintf("%s: a value to compare is %g", run->path.c_str(), *value),
          "leave out this run; its log.txt has the step at which its loss became NaN or infinite");
    values.push_back({.seed = run->config.run.seed, .value = *value});
  }
  return values;
}

SeedValues values_of(const SeedGroup& group, const Measure& measure, const Measure& resolution) {
  SeedValues values;
  for (const RunRecord* run : group.runs) {
    for (SeedValue value : values_of({.name = group.name, .runs = {run}}, measure)) {
      value.below = resolution(*run).value_or(0);
      values.push_back(value);
    }
  }
  return values;
}

std::optional<Summary> summarise(const SeedValues& values) {
  if (values.empty()) return std::nullopt;
  std::vector<double> numbers;
  double below = 0, above = 0;
  for (const SeedValue& v : values) {
    numbers.push_back(v.value);
    below += v.below / double(values.size());
    above += v.above / double(values.size());
  }
  return with_resolution(summarise(std::span<const double>(numbers)), below, above);
}

SeedValues subtract(const SeedValues& a, const SeedValues& b) {
  SeedValues differences;
  for (const SeedValue& x : a) {
    for (const SeedValue& y : b) {
      if (x.seed != y.seed) continue;
      differences.push_back({.seed = x.seed,
                             .value = x.value - y.value,
                             .below = x.below + y.above,
                             .above = x.above + y.below});
    }
  }
  return differences;
}

SeedValues negated(SeedValues values) {
  for (SeedValue& v : values) {
    v.value = -v.value;
    std::swap(v.below, v.above);
  }
  return values;
}

std::optional<PairedDifference> paired_difference(const SeedValues& a, const SeedValues& b) {
  const SeedValues differences = subtract(a, b);
  const std::optional<Summary> summary = summarise(differences);
  if (!summary) return std::nullopt;
  PairedDifference paired{.summary = *summary, .seeds = {}};
  for (const SeedValue& difference : differences) paired.seeds.push_back(difference.seed);
  return paired;
}

}  // namespace assay
