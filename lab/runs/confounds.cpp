#include "lab/runs/confounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "data/sha256.h"
#include "engine/config/schedule.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/passes.h"
#include "models/linear/precision.h"

namespace assay {
namespace {

// Of the audit's confounds.
const std::set<std::string> kByDesign = {"experts", "data", "tokenizer", "sequence", "eval"};

constexpr size_t kShownFields = 3;  // of one name

// Shares of the steps that are called equal: a contract changes the steps by design, and with them
// the share of a warm-down that was given in steps.
constexpr double kNearShare = 0.05;

// The formats that the run was trained in: `auto` as the machine resolved it, and without what only
// counts where something is quantised.
PrecisionConfig trained_precision(const RunRecord& run) {
  PrecisionConfig p = run.config.precision;
  if (p.recipe == "auto" && !run.recipe.empty()) p.recipe = run.recipe;
  if (p.products == ProductsMode::kAuto) p.products = ProductsMode::kSimulated;
  if (is_quantised_recipe(p.recipe) || !p.override_.empty()) return p;
  PrecisionConfig plain;
  plain.recipe = p.recipe;
  plain.products = ProductsMode::kSimulated;
  return plain;
}

// A part of a schedule that was given as steps, or as a share of them, which is rounded up.
bool is_one_part(int64_t a, const Schedule& of_a, int64_t b, const Schedule& of_b) {
  if (a == b) return true;
  const double apart = double(a) / double(of_a.steps) - double(b) / double(of_b.steps);
  return std::fabs(apart) <= 1.0 / double(std::min(of_a.steps, of_b.steps));
}

// Writes a part as steps: those of the first model where it is one part in all of them, as it was
// given (a cosine without a length takes what is left of any number of steps) or as it came out.
void resolve_part(std::vector<NamedConfig>& models, const std::vector<Schedule>& schedules,
                  int64_t Schedule::*part, int64_t ScheduleConfig::*steps,
                  std::optional<double> ScheduleConfig::*fraction) {
  const Schedule& first = schedules.front();
  const ScheduleConfig given = models.front().config.schedule;
  const bool given_as_one = std::all_of(models.begin(), models.end(), [&](const NamedConfig& m) {
    const ScheduleConfig& s = m.config.schedule;
    return s.*steps == given.*steps && s.*fraction == given.*fraction && s.decay == given.decay;
  });
  const bool one =
      given_as_one || std::all_of(schedules.begin(), schedules.end(), [&](const Schedule& s) {
        return is_one_part(first.*part, first, s.*part, s);
      });
  for (size_t i = 0; i < models.size(); ++i) {
    ScheduleConfig& schedule = models[i].config.schedule;
    schedule.*fraction = std::nullopt;
    schedule.*steps = one ? first.*part : schedules[i].*part;
  }
}

std::vector<NamedConfig> trained_configs(std::span<const SeedGroup> groups) {
  std::vector<NamedConfig> models;
  std::vector<Schedule> schedules;
  for (const SeedGroup& group : groups) {
    NamedConfig& model = models.emplace_back(NamedConfig{group.name, group.config()});
    schedules.push_back(make_schedule(model.config));
    model.config.run.seed = 0;
    model.config.precision = trained_precision(*group.runs.front());
  }
  resolve_part(models, schedules, &Schedule::warmup, &ScheduleConfig::warmup,
               &ScheduleConfig::warmup_fraction);
  resolve_part(models, schedules, &Schedule::warmdown, &ScheduleConfig::warmdown,
               &ScheduleConfig::warmdown_fraction);
  return models;
}

// A cosine that takes every step after the warm-up.
bool decays_to_the_end(const ScheduleConfig& s) {
  return s.decay == DecayShape::kCosine && s.warmdown == 0 && !s.warmdown_fraction;
}

// "schedule": a warm-down of as many steps, which is another part of runs of other lengths. Where
// its steps differ too, there is a line on these.
void add_warmdown_shares(std::span<const SeedGroup> groups, std::vector<Confound>& found) {
  const auto of_steps = [](const Confound& c) {
    return c.text.starts_with("schedule.warmdown differs");
  };
  if (std::any_of(found.begin(), found.end(), of_steps)) return;
  std::vector<std::string> names, values;
  std::vector<double> shares;
  int64_t fewest = make_schedule(groups.front().config()).steps;
  bool to_the_end = true;
  for (const SeedGroup& group : groups) {
    const Schedule schedule = make_schedule(group.config());
    shares.push_back(double(schedule.warmdown) / double(schedule.steps));
    fewest = std::min(fewest, schedule.steps);
    to_the_end &= decays_to_the_end(group.config().schedule);
    names.push_back(group.name);
    values.push_back(strprintf("%.0f%%", 100 * shares.back()));
  }
  const auto [low, high] = std::minmax_element(shares.begin(), shares.end());
  if (to_the_end || *high - *low <= std::max(kNearShare, 1 / double(fewest))) return;
  found.push_back({"schedule", "share of the warm-down in the steps differs: " +
                                   values_by_model(names, values)});
}

void add_seeds(std::span<const SeedGroup> groups, std::vector<Confound>& found) {
  std::vector<std::string> names, seeds;
  for (const SeedGroup& group : groups) {
    std::string all;
    for (const RunRecord* run : group.runs)
      all += (all.empty() ? "" : " ") + std::to_string(run->config.run.seed);
    names.push_back(group.name);
    seeds.push_back(all);
  }
  if (std::set<std::string>(seeds.begin(), seeds.end()).size() > 1)
    found.push_back({"seeds", "seeds differ: " + values_by_model(names, seeds)});
}

void add_passes(std::span<const SeedGroup> groups, std::vector<Confound>& found) {
  std::vector<std::string> names, values;
  bool repeated = false;
  for (const SeedGroup& group : groups) {
    const std::optional<double> passes = passes_of(*group.runs.front());
    if (!passes) return;
    repeated |= *passes > 1;
    names.push_back(group.name);
    values.push_back(strprintf("%.2f", *passes));
  }
  if (repeated && std::set<std::string>(values.begin(), values.end()).size() > 1) {
    found.push_back(
        {"passes", "passes over the training data differ: " + values_by_model(names, values)});
  }
}

// "f1c36141d", or where all runs have one commit the hash of its build: compilers make several.
std::string build_text(const RunRecord& run, bool one_commit) {
  return one_commit ? short_hash(run.program_sha256) : run.commit.substr(0, 9);
}

// "program": the builds that trained the runs, which may round differently or have other kernels.
// None where a run does not know its build, as one of an earlier version.
void add_programs(std::span<const SeedGroup> groups, std::vector<Confound>& found) {
  std::set<std::string> programs, commits;
  for (const SeedGroup& group : groups) {
    for (const RunRecord* run : group.runs) {
      if (run->program_sha256.empty() || run->commit.empty()) return;
      programs.insert(run->program_sha256);
      commits.insert(run->commit);
    }
  }
  if (programs.size() < 2) return;
  std::vector<std::string> names, values;
  for (const SeedGroup& group : groups) {
    std::map<std::string, int64_t> runs;
    for (const RunRecord* run : group.runs) ++runs[build_text(*run, commits.size() == 1)];
    std::string text;
    for (const auto& [build, count] : runs) {
      text += (text.empty() ? "" : " and ") + build;
      if (runs.size() > 1) text += strprintf(" (%ld run%s)", long(count), count == 1 ? "" : "s");
    }
    names.push_back(group.name);
    values.push_back(text);
  }
  found.push_back({"program", "builds of the program differ: " + values_by_model(names, values)});
}

// One for each name, in the order of their first.
std::vector<Confound> joined_by_name(const std::vector<Confound>& all) {
  std::vector<Confound> joined;
  std::map<std::string, size_t> count;
  for (const Confound& c : all) {
    if (count[c.name]++ == 0) {
      joined.push_back(c);
      continue;
    }
    const auto same = std::find_if(joined.begin(), joined.end(),
                                   [&](const Confound& j) { return j.name == c.name; });
    if (count[c.name] <= kShownFields) same->text += "; " + c.text;
  }
  for (Confound& c : joined) {
    if (count[c.name] > kShownFields)
      c.text += strprintf(" (and %zu more)", count[c.name] - kShownFields);
  }
  return joined;
}

// "training_data": of each model the first shard that not all have. Of one run of each, as all
// seeds of a model have the same. nullopt where the contents are the same, and where a run does not
// tell its training shards from those of its validation.
std::optional<Confound> other_training_data(std::span<const SeedGroup> groups) {
  std::vector<std::vector<DataFile>> shards;
  std::set<std::multiset<std::string>> contents;
  std::map<std::string, size_t> models_with;  // by content
  for (const SeedGroup& group : groups) {
    const std::optional<DataRoles> roles = data_roles(*group.runs.front());
    if (!roles) return std::nullopt;
    std::multiset<std::string> all;
    for (const DataFile& file : roles->train) all.insert(file.sha256);
    for (const std::string& one : std::set<std::string>(all.begin(), all.end())) ++models_with[one];
    contents.insert(all);
    shards.push_back(roles->train);
  }
  if (contents.size() < 2) return std::nullopt;
  std::vector<std::string> names, values;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto own = std::find_if(shards[i].begin(), shards[i].end(), [&](const DataFile& file) {
      return models_with[file.sha256] < groups.size();
    });
    names.push_back(groups[i].name);
    values.push_back(own == shards[i].end()
                         ? strprintf("no shard of its own (of %zu)", shards[i].size())
                         : own->text());
  }
  return Confound{"training_data", "training data differs: " + values_by_model(names, values)};
}

}  // namespace

std::vector<Confound> run_confounds(std::span<const SeedGroup> groups) {
  if (groups.size() < 2) return {};
  std::vector<Confound> found = recorded_confounds(trained_configs(groups));
  std::erase_if(found, [](const Confound& c) { return kByDesign.contains(c.name); });
  add_warmdown_shares(groups, found);
  if (auto data = other_training_data(groups)) found.push_back(*std::move(data));
  add_passes(groups, found);
  add_seeds(groups, found);
  add_programs(groups, found);
  return joined_by_name(found);
}

std::string confounds_sentence(const std::vector<Confound>& found) {
  std::string names;
  for (const Confound& c : found) {
    std::string words = c.name;
    std::replace(words.begin(), words.end(), '_', ' ');
    names += (names.empty() ? "" : ", ") + words;
  }
  return names.empty() ? "" : "They also differ in " + names + ".";
}

}  // namespace assay
