// AdamW over a model's parameters, by group: global norm, clip factor, update. Nothing waits for
// the result: norm and clip stay where the gradients are until read_back().
#pragma once

#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/group_ratios.h"
#include "engine/model.h"
#include "ops/global_norm.h"

namespace assay {

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, Model& model);

  void plan(MemoryPlan& plan);
  // After MemoryPlan::allocate() and Model::bind().
  void bind();

  // step counts from 0; lr_share is the schedule's share of each group's peak learning rate.
  void step(Exec on, int64_t step, double lr_share);

  // Queues copies of the three numbers below: they are there after wait(on).
  void read_back(Exec on);
  double gradient_norm() const { return double(read_norm_[0]); }
  double clip_factor() const { return double(read_clip_[0]); }
  int64_t non_finite() const { return read_non_finite_[0]; }
  // Of every master, bit by bit; the same for any thread count. Waits for a GPU.
  uint64_t parameter_checksum(Exec on) const;
  // Of the last step(), while its gradients are there. Reads every parameter, its moments and its gradient: for a sampled
  // step. Waits for a GPU.
  GroupRatios ratios(Exec on) const;
  // First and second moments, named "<parameter>.m" and "<parameter>.v".
  std::vector<TensorRef> tensors();

 private:
  struct GroupSettings {
    double lr, beta2, weight_decay;
  };
  GroupSettings settings(Group group) const;
  AdamWConstants last_constants(Group group) const;
  RatioSquares squares_of_copies(Exec on, const RatioTensor& device) const;
  uint64_t checksum_of_copies(Exec on, View<const float, 1> master) const;

  OptimizerConfig config_;
  Model& model_;
  std::vector<ParameterRef> parameters_;  // shapes at construction, addresses after bind()
  struct Moments {
    View<float, 1> m, v;
  };
  std::vector<Moments> moments_;
  std::vector<View<const float, 1>> gradients_;
  View<float, 1> norm_, clip_;
  View<int64_t, 1> non_finite_;
  View<double, 2> partial_;
  // The host's.
  View<float, 1> read_norm_, read_clip_;
  View<int64_t, 1> read_non_finite_;
  View<uint64_t, 1> checksums_;  // one a parameter
  View<float, 2> staging_;  // (4, kStaging) pieces of a parameter, its moments and its gradient
  int64_t last_step_ = 0;   // t of the last step(), from 1
  double last_lr_share_ = 0;
};

}  // namespace assay
