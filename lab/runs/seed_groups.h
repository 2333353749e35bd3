// Runs that differ in nothing but run.seed are one model: one row of a table, with its spread over
// the seeds.
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
  std::string name;                    // what the names of its runs share, without the seed
  std::vector<const RunRecord*> runs;  // by ascending seed; all of one configuration
  const Config& config() const { return runs.front()->config; }
  const Audit& audit() const { return runs.front()->audit; }
};

// One number a seed, by ascending seed; runs that do not have it are left out.
struct SeedValue {
  int64_t seed = 0;
  double value = 0;
};
using SeedValues = std::vector<SeedValue>;
using Measure = std::function<std::optional<double>(const RunRecord&)>;

// Reads each directory once. UserError when one is given twice.
std::vector<RunRecord> read_runs(const std::vector<std::string>& paths);

// What has to be equal for two runs to be seeds of one model: every field but the seed and those
// that change no number (threads, checkpoints, logging); of paths the file name.
std::string model_identity(const Config& config);

// In the order in which the models first appear; names differ. The records must outlive the groups.
// UserError when a model has two runs of one seed: they would count as two although they are one.
std::vector<SeedGroup> group_by_seed(std::span<const RunRecord> runs);

// UserError naming the run when a value is not finite.
SeedValues values_of(const SeedGroup& group, const Measure& measure);
std::optional<Summary> summarise(const SeedValues& values);  // nothing for no values

// a - b over the seeds that both have; nothing when they share none.
struct PairedDifference {
  Summary summary;
  std::vector<int64_t> seeds;
};
std::optional<PairedDifference> paired_difference(const SeedValues& a, const SeedValues& b);

// What a run took to its first evaluation at or below a loss.
struct TimeToTarget {
  int64_t steps = 0;
  double tokens = 0;
  double flops = 0;               // training FLOPs of the model
  std::optional<double> seconds;  // of training; where they were logged
};
std::optional<TimeToTarget> time_to_target(const RunRecord& run, double loss_nats);

}  // namespace assay
