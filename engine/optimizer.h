// The optimizer over a model's parameters, by group: global norm, clip factor, update. AdamW steps
// all of them, or with kind muon those that are no matrices inside the blocks: embedding, head,
// norms and routers (engine/optimizer_muon.h steps the others). step() does not wait for a GPU:
// norm and clip factor stay on the device until read_back().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "engine/config/config.h"
#include "engine/model.h"
#include "engine/optimizer_muon.h"
#include "engine/shards.h"
#include "engine/update_ratios.h"
#include "ops/global_norm.h"

namespace assay {

class Optimizer {
 public:
  // What one rank owns, as indices of Model::parameters().
  using OwnedSegments = std::vector<Segment>;
  // seed: of the stochastic rounding of bf16 state. owned: by Shards; null: this is the only rank,
  // and owns everything.
  Optimizer(const OptimizerConfig& config, Model& model, uint64_t seed,
            const OwnedSegments* owned = nullptr);

  void plan(MemoryPlan& plan);
  // After MemoryPlan::allocate() and Model::bind().
  void bind();

  // step counts from 0; lr_share is the schedule's share of each group's peak learning rate. A
  // sampled step also sums the squares for ratios(), in the same pass.
  // ranks: those that share the batch, or null. With them the call is collective, and steps the
  // masters of this rank only: RankSums::gather_masters, then Model::refresh_weights follow.
  enum class Sample { kNothing, kRatios };
  void step(Exec on, int64_t step, double lr_share, Sample sample = Sample::kNothing,
            Group* ranks = nullptr);

  // Queues copies to the host of the following values, which are valid after wait(on).
  void read_back(Exec on);
  double gradient_norm() const { return double(read_norm_[0]); }
  double clip_factor() const { return double(read_clip_[0]); }
  int64_t non_finite() const { return read_non_finite_[0]; }
  // Checksum of the bits of all masters, the same for any number of threads and ranks. Waits for a
  // GPU. share_holders: the ranks that hold the shares of tensors together, where there are shares;
  // then the call is collective.
  uint64_t parameter_checksum(Exec on, Group* share_holders = nullptr) const;
  // The ratios of the last sampled step, after read_back() and wait(on).
  GroupRatios ratios() const;
  // First and second moments, named "<parameter>.m" and "<parameter>.v", in the type of the master;
  // of a matrix that Muon steps its momentum instead, named "<parameter>.momentum". What this rank
  // owns of each tensor: slices, or an empty one.
  std::vector<Slice> slices();
  // The same of the masters, under the parameters' names.
  std::vector<Slice> master_slices();
  // slices() of a rank that owns everything.
  std::vector<TensorRef> tensors();

 private:
  struct GroupSettings {
    double lr, beta2, weight_decay;
  };
  GroupSettings settings(ParameterGroup group) const;

  // Neighbouring elements of a parameter that this rank owns, and their state.
  struct Owned : Segment {
    explicit Owned(const Segment& elements) : Segment(elements) {}
    View<float, 1> m, v;
    View<bf16, 1> bf16_m, bf16_v;   // instead, with bf16 state
    View<float, 1> momentum;        // instead, by Muon
    int64_t piece = 0, pieces = 0;  // rows of squares_
    int64_t norm_piece = 0;         // first row of partial_
    std::vector<MuonStack> stacks;  // from element 0 of the parameter
    uint64_t stream = 0;            // of its stochastic rounding
  };
  void add_owned(std::vector<Slice>& all, size_t parameter, const Slice& of,
                 const std::function<void*(const Owned&)>& data) const;
  void plan_state(MemoryPlan& plan, Owned& own, int64_t first_piece) const;
  bool by_muon(size_t parameter) const;
  void measure_norm(Exec on, Group* ranks) const;
  View<double, 2> squares_of(const Owned& own) const;  // of a sampled step, else empty
  void step_muon(Exec on, const Owned& own, double lr_share) const;
  void step_fp32(Exec on, const Owned& own, int64_t step, double lr_share) const;
  void step_bf16(Exec on, const Owned& own, int64_t step, double lr_share) const;

  OptimizerConfig config_;
  Model& model_;
  uint64_t seed_;
  MuonUpdates muon_;
  std::vector<ParameterRef> parameters_;  // shapes at construction, addresses after bind()
  std::vector<Owned> owned_;
  // Rows of squares_ of a parameter, and the first of this rank's share.
  struct Pieces {
    int64_t first = 0, count = 0, share = 0;
  };
  std::vector<Pieces> pieces_;                   // by parameter
  bool whole_ = true;                            // this rank owns everything
  std::vector<View<const float, 1>> gradients_;  // of owned_
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
