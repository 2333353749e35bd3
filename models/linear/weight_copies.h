// Decoded copies of a weight for simulated products: fprop and dgrad read them instead of the
// rounded master. They are made from the master once per optimizer step, so checkpoints do not
// hold them.
//
//   fprop   blocks along `in`, the sum of y = x W^T
//   dgrad   blocks along `out`, the sum of dx = dy W
//
// Formats whose blocks are the same along both axes (tensor, 128x128, 16x16) need one copy. Blocks
// do not cross from one expert into the next; a tensor scale covers all experts together.
#pragma once

#include <string>

#include "cuda/memory_plan.h"
#include "engine/model.h"
#include "models/linear/precision.h"
#include "models/linear/quantised_scratch.h"
#include "models/parameters/store.h"
#include "ops/weight_matrix.h"

namespace assay {

class WeightCopies {
 public:
  WeightCopies(std::string name, const ProductFormats& formats);

  const std::string& name() const { return name_; }
  const MasterView& master() const { return master_; }  // after bind()
  void plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend);
  // Keeps the master's address and uploads the experts' row offsets.
  void bind(Exec on, const MasterView& master);
  // Remakes the copies for the phase: quantised and decoded, or the master rounded to bf16.
  // measures: as in FakeQuantise, or empty; with them, codes that differ from the previous copy are
  // counted.
  struct Sites {
    uint32_t fprop, dgrad;  // of FakeCopy
  };
  void refresh(Exec on, const QuantPass& q, View<double, 1> measures, const Sites& sites) const;

  WeightMatrix<bf16> fprop_matrix() const { return matrix(fprop_); }
  WeightMatrix<bf16> dgrad_matrix() const { return matrix(one_ ? fprop_ : dgrad_); }
  WeightStack<bf16> fprop_stack() const { return stack(fprop_); }
  WeightStack<bf16> dgrad_stack() const { return stack(one_ ? fprop_ : dgrad_); }
  // 1 / S, S for the product's epilogue.
  View<const float, 1> fprop_scale() const { return fprop_.scale; }
  View<const float, 1> dgrad_scale() const { return one_ ? fprop_.scale : dgrad_.scale; }

 private:
  struct Copy {
    OperandFormat format;
    View<bf16, 1> plain;        // (E out in)
    View<std::byte, 1> packed;  // CPU only
    View<float, 1> scale;       // (2)   1 / S, S
    View<bf16, 1> scales = {};  // of the blocks, if the format has them
  };
  void plan_copy(MemoryPlan& plan, const std::string& name, Copy& copy, FakeWay way,
                 Backend backend) const;
  void make(Exec on, const QuantPass& q, const Copy& copy, FakeWay way, View<double, 1> measures,
            uint32_t site) const;
  void round(Exec on, View<bf16, 1> to) const;  // the master in bf16
  template <typename M>
  void quantise(Exec on, const QuantPass& q, View<const M, 1> master, const Copy& copy, FakeWay way,
                View<double, 1> measures, uint32_t site) const;
  void pack(Exec on, const Copy& copy) const;
  WeightMatrix<bf16> matrix(const Copy& copy) const;
  WeightStack<bf16> stack(const Copy& copy) const;

  const std::string name_;
  const bool one_;  // fprop_ serves both
  Copy fprop_, dgrad_;
  int64_t experts_ = 0, out_ = 0, in_ = 0;  // experts 0: a matrix
  MasterView master_;
  View<int32_t, 1> offsets_;  // (E + 1) rows of each expert
};

}  // namespace assay
