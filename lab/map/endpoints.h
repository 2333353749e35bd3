// Finished runs as endpoints of models: what each spent on every axis of cost, and what came out.
//
// The runs of one model differ in seed, steps, schedule and contract only: trunks and branches
// (docs/branch.md), or runs under several contracts of a matrix.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/machine.h"
#include "models/audit/family.h"

namespace assay {

// The order of the tables.
enum class CostAxis { kTokens, kPActive, kPTotal, kPUsed, kFlops, kSeconds, kMemory, kJoules };
constexpr size_t kCostAxes = 8;

struct AxisWords {
  CostAxis axis;
  const char* name;   // for --axis and JSON: p_active
  const char* title;  // tokens per active parameter
  const char* unit;   // "" for a ratio
};
const std::array<AxisWords, kCostAxes>& cost_axes();
const AxisWords& words_of(CostAxis axis);

enum class MapMeasure { kValLoss, kCore };

// What an endpoint spent on an axis, or why that is not known.
struct Spent {
  std::optional<double> value;  // above 0
  std::string missing;
};

struct Endpoint {
  std::string run;  // its folder
  int64_t seed = 0;
  int64_t steps = 0;
  double value = 0;  // of the measure, at its last step
  std::array<Spent, kCostAxes> cost;
  std::string device;     // "cpu, Intel(R) Xeon(R) Processor"
  Machine machine = {};   // on which its seconds and joules were spent
  std::string used_text;  // on which its P_used was measured, with its length; "" of a dense run
  std::string energy_of;  // what its joules count: "CPU", "GPU", "CPU and GPU"; "": not recorded
  const Spent& of(CostAxis axis) const { return cost[size_t(axis)]; }
};

struct MapModel {
  std::string name;
  int64_t p_total = 0, p_active = 0, flops_per_token = 0;
  std::vector<Endpoint> endpoints;     // by seed, then steps; no two of one seed with equal steps
  std::vector<int64_t> seeds() const;  // ascending
};

struct SkippedRun {
  std::string run, reason;
  bool unread = false;  // its files cannot be read, or are damaged
};

struct EndpointSet {
  std::vector<MapModel> models;  // in the order in which they first appear
  std::vector<SkippedRun> left_out;
  std::vector<Confound> confounds;  // what else differs between the models
  std::vector<std::string> notes;   // what to know before reading the tables
};

// paths: runs, or folders of runs. only: names of models; empty = all. UserError if there are no
// finished endpoints, fewer than two models, a model that is not there, runs whose losses cannot be
// compared (incomparable_differences() of lab/compare/compare.h), or for kCore runs that were asked
// other questions (lab/runs/core_questions.h).
EndpointSet collect_endpoints(const std::vector<std::string>& paths, MapMeasure measure,
                              const std::vector<std::string>& only);

}  // namespace assay
