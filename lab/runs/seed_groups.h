// Runs that differ only in run.seed are one model: one row of a table, with its spread over the
// seeds.
//
//   const std::vector<RunRecord> records = read_runs(paths);
//   for (const SeedGroup& model : group_by_seed(records)) {
//     const SeedValues losses = values_of(model, final_loss);
//     const std::optional<Summary> spread = summarise(losses);
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"
#include "lab/runs/statistics.h"

namespace assay {

struct SeedGroup {
  // Common part of the runs' names, without the seed; with the folders before it where models
  // would have the same.
  std::string name;
  std::vector<const RunRecord*> runs;  // by ascending seed; all of one configuration
  const Config& config() const { return runs.front()->config; }
  const Audit& audit() const { return runs.front()->audit; }
};

// One value per seed, by ascending seed; runs without the value are left out.
struct SeedValue {
  int64_t seed = 0;
  double value = 0;
  double below = 0, above = 0;  // its resolution: by how much it may be lower and higher
};
using SeedValues = std::vector<SeedValue>;
using Measure = std::function<std::optional<double>(const RunRecord&)>;

// Runs in folders of one name are named with the folders before it. UserError if a directory is
// given twice.
std::vector<RunRecord> read_runs(const std::vector<std::string>& paths);

// Equal for runs that are seeds of one model. Holds every field except the seed and those that do
// not change the numbers (threads, checkpoints, logging, limits like data.max_epochs and
// telemetry.collapse_stop); of paths only the file name.
std::string model_identity(const Config& config);
// The same for a run: seeds that began from imported weights are one model if those are the same.
std::string model_identity(const RunRecord& run);
// The fields in which their identities differ, e.g. "optimizer.lr"; empty for seeds of one model.
std::vector<std::string> model_differences(const Config& a, const Config& b);

// Equal for runs that are endpoints of one model: model_identity() without the number of steps and
// what goes with it (warm-up, warm-down, contract, target) and without what is measured on the way.
std::string recipe_identity(const Config& config);
// The same for a run, with the imported weights that it began from.
std::string recipe_identity(const RunRecord& run);

// In the order in which the models first appear; names are unique. The records must outlive the
// groups. A seed may appear twice in a model. Where telemetry.collapse_stop ended a run of a model,
// runs with another rule are another one; where a seed was trained twice under other limits or
// ranks, so are runs with other ones. So are runs whose shards have other contents, whatever their
// names.
std::vector<SeedGroup> group_by_model(std::span<const RunRecord> runs);
// The same by any identity. given_name: of the model that a run belongs to; where it gives "", the
// name is the common part of the runs' names.
using RunText = std::function<std::string(const RunRecord&)>;
std::vector<SeedGroup> group_runs(std::span<const RunRecord> runs, const RunText& identity,
                                  const RunText& given_name);
// The same for statistics: UserError if a model has two runs of one seed, which would be counted
// twice.
std::vector<SeedGroup> group_by_seed(std::span<const RunRecord> runs);

// UserError naming the run if a value is not finite.
SeedValues values_of(const SeedGroup& group, const Measure& measure);
// The same of values read on a grid; resolution: by how much a run's value may be lower.
SeedValues values_of(const SeedGroup& group, const Measure& measure, const Measure& resolution);
// With the mean resolution of the values.
std::optional<Summary> summarise(const SeedValues& values);  // nullopt if empty

// a - b over the seeds that both have.
SeedValues subtract(const SeedValues& a, const SeedValues& b);
SeedValues negated(SeedValues values);

// Its summary; nullopt if they share none.
struct PairedDifference {
  Summary summary;
  std::vector<int64_t> seeds;
};
std::optional<PairedDifference> paired_difference(const SeedValues& a, const SeedValues& b);

}  // namespace assay
