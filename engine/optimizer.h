// The optimizer over a model's parameters, by group: global norm, clip factor, update. AdamW steps
// all of them, or with kind muon those that are no matrices inside the blocks: embedding, head,
// norms and routers (engine/optimizer_muon.h steps the others). step() does not wait for a GPU:
// norm and clip factor stay on the device until read_back().
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/model.h"
#include "engine/optimizer_muon.h"
#include "engine/update_ratios.h"
#include "ops/global_norm.h"

namespace assay {

class Optimizer {
 public:
  // seed: of the stochastic rounding of bf16 state.
  Optimizer(const OptimizerConfig& config, Model& model, uint64_t seed);

  void plan(MemoryPlan& plan);
  // After MemoryPlan::allocate() and Model::bind().
  void bind();

  // step counts from 0; lr_share is the schedule's share of each group's peak learning rate. A
  // sampled step also sums the squares for ratios(), in the same pass.
  enum class Sample { kNothing, kRatios };
  void step(Exec on, int64_t step, double lr_share, Sample sample = Sample::kNothing);

  // Queues copies to the host of the following values, which are valid after wait(on).
  void read_back(Exec on);
  double gradient_norm() const { return double(read_norm_[0]); }
  double clip_factor() const { return double(read_clip_[0]); }
  int64_t non_finite() const { return read_non_finite_[0]; }
  // Checksum of the bits of all masters, the same for any thread count. Waits for a GPU.
  uint64_t parameter_checksum(Exec on) const;
  // The ratios of the last sampled step, after read_back() and wait(on).
  GroupRatios ratios() const;
  // First and second moments, named "<parameter>.m" and "<parameter>.v", in the type of the master;
  // of a matrix that Muon steps its momentum instead, named "<parameter>.momentum".
  std::vector<TensorRef> tensors();

 private:
  struct GroupSettings {
    double lr, beta2, weight_decay;
  };
  GroupSettings settings(Group group) const;

  bool by_muon(size_t i) const;
  View<double, 2> squares_of(size_t i) const;  // of a sampled step, else empty
  void step_muon(Exec on, size_t i, double lr_share) const;
  void step_fp32(Exec on, size_t i, int64_t step, double lr_share) const;
  void step_bf16(Exec on, size_t i, int64_t step, double lr_share) const;

  OptimizerConfig config_;
  Model& model_;
  uint64_t seed_;
  MuonUpdates muon_;
  std::vector<ParameterRef> parameters_;  // shapes at construction, addresses after bind()
  struct Moments {
    View<float, 1> m, v;
    View<bf16, 1> bf16_m, bf16_v;   // instead, with bf16 state
    View<float, 1> momentum;        // instead, by Muon
    int64_t piece = 0, pieces = 0;  // first row of this parameter in squares_, and their number
    std::vector<MuonStack> stacks;
    uint64_t stream = 0;  // of its stochastic rounding
  };
  std::vector<Moments> moments_;
  std::vector<View<const float, 1>> gradients_;
  View<float, 1> norm_, clip_;
  View<int64_t, 1> non_finite_;
  View<double, 2> partial_;
  View<double, 2> squares_;  // (pieces of all parameters, 3)
  // On the host.
  View<float, 1> read_norm_, read_clip_;
  View<int64_t, 1> read_non_finite_;
  View<int64_t, 1> checksums_;  // one per parameter
  View<double, 2> read_squares_;
  View<int64_t, 1> device_checksums_;  // with a GPU: checksums_ on the device
  bool sampled_ = false;               // the last step() was sampled
};

}  // namespace assay
