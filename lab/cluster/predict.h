// What a step would take on a cluster, computed from parts that were measured one by one: the ops
// of a micro-batch (step_ops.h, op_times.h), the calls of a step (step_calls.h, schedule.h) and the
// memory plan. Nothing of it is a measurement of a cluster.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/cluster/cluster.h"
#include "lab/cluster/op_times.h"
#include "lab/cluster/schedule.h"

namespace assay {

// How a step's batch lies on GPUs.
struct Mapping {
  GroupShape shape;
  int64_t expert_ranks = 1;   // ranks that share the experts of a layer; 1: each rank has all
  int64_t micro_batch = 1;    // sequences
  int64_t micro_batches = 1;  // of a step, on each rank

  int ranks() const { return shape.size(); }
};

// The mapping of the configuration's batch: its micro-batch, or the largest smaller one with which
// the ranks divide the step. UserError where none does, or where the experts do not divide.
Mapping mapping_of(const Config& config, const GroupShape& shape, int64_t expert_ranks);

struct StepTime {
  double step_s = 0;
  std::map<std::string, double> exposed_s;  // what the ranks cost, by cause; in step_s
};

struct Prediction {
  Mapping mapping;
  double memory_bytes = 0;  // of the fullest GPU, as the program plans it
  bool fits = false;
  double sent_bytes = 0;     // in a step, by the rank that sends most
  double micro_batch_s = 0;  // forward and backward of one
  double update_s = 0;       // norm and optimizer of what a rank owns, zeroing, sums of its parts
  // As the program works now: every call after backward, one after the other, over all ranks at
  // once. Not with expert ranks, whose exchanges lab/cluster/step_calls.h does not list.
  std::optional<StepTime> now;
  // With what is not built: gradients of a bucket leave while backward goes on; two levels.
  StepTime overlapped;
  // And parameters come in while the next step computes forward.
  StepTime hidden;
  std::set<std::string> assumed;  // ops whose share of the limit is OpTimes::kAssumedShare
};

// One GPU has the shape {1, 1}. UserError where the configuration's step is not listed, or where
// planning every rank would take more than some minutes or gigabytes.
Prediction predict(const Config& config, const Mapping& mapping, const Cluster& cluster,
                   const OpTimes& times);

// What NCCL and the driver take of a GPU's memory, assumed.
inline constexpr double kReservedBytes = 1 << 30;

}  // namespace assay
