// How long an op takes on a GPU: its bytes or its FLOPs over the GPU's limit, whichever takes
// longer, over the share of that limit which the op reached in measured steps. One share an op,
// over all models that were measured.
//
// A share is of the limits that the clusters' files have for the GPU of the profiles, and is
// applied to limits of these files: what a results.json has as limits may be measured otherwise
// (heat_s), by a third lower on the same card.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lab/cluster/cluster.h"
#include "lab/cluster/step_ops.h"

namespace assay {

struct MeasuredText {
  std::string name, json;
};
const std::vector<MeasuredText>& measured_op_texts();  // generated: the measured H200

class OpTimes {
 public:
  // Of the bf16 profiles of a results.json that tools/gpu_check.sh wrote; "": the embedded one.
  // without: a model whose profile is left out, e.g. to predict it. UserError: no such file.
  static OpTimes read(const std::string& path, const std::string& without = "");

  double seconds(const OpCall& call, const Cluster& cluster) const;
  double seconds(const std::vector<OpCall>& calls, const Cluster& cluster) const;

  const std::string& from() const { return from_; }
  const std::map<std::string, double>& shares() const { return shares_; }
  bool has_share(const std::string& op) const { return shares_.contains(op); }
  // Experts of a layer in the profiled model that has most; 0 of dense ones.
  int64_t most_experts() const { return most_experts_; }
  // What to think of before the times are believed, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  // The share of ops that no profile has, e.g. the sum of what other ranks sent.
  static constexpr double kAssumedShare = 0.85;

 private:
  std::string from_;
  std::map<std::string, double> shares_;
  int64_t most_experts_ = 0;
  std::vector<std::string> notes_;
};

// Seconds at a GPU's limits.
double seconds_at_limit(const Cost& cost, double flop_per_s, double bytes_per_s);

}  // namespace assay
