// A weight whose products are quantised: what fprop and dgrad read instead of the rounded master.
// Made from the fp32 master once an optimizer step, so nothing of it is in a checkpoint.
//
//   fprop   blocks along `in`, the sum of y = x W^T            dgrad   blocks along `out`, the sum of dx = dy W
//
// Formats whose blocks are the same along both axes (tensor, 128x128, 16x16) need one copy.
// Experts' blocks do not cross from one expert into the next; a tensor scale is that of all experts
// together.
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
  View<const float, 1> master() const { return master_; }  // after bind()
  void plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend);
  // Fills tables.
  void bind(Exec on, View<const float, 1> master);
  // Copies of the master as the phase has it: decoded, or rounded to bf16 with the scale 1.
  // measures: of FakeQuantise, or empty; with them codes that are not those of the copy before are
  // counted.
  struct Sites {
    uint32_t fprop, dgrad;  // of FakeCopy
  };
  void refresh(Exec on, const QuantScratch& scratch, View<double, 1> measures,
               const Sites& sites) const;

  WeightMatrix<bf16> fprop_matrix() const { return matrix(fprop_); }
  WeightMatrix<bf16> dgrad_matrix() const { return matrix(one_ ? fprop_ : dgrad_); }
  WeightStack<bf16> fprop_stack() const { return stack(fprop_); }
  WeightStack<bf16> dgrad_stack() const { return stack(one_ ? fprop_ : dgrad_); }
  // S, 1 / S: of the product's epilogue.
  View<const float, 1> fprop_scale() const { return fprop_.scale; }
  View<const float, 1> dgrad_scale() const { return one_ ? fprop_.scale : dgrad_.scale; }

 private:
  struct Copy {
    OperandFormat format;
    View<bf16, 1> plain;        // (E out in)
    View<std::byte, 1> packed;  // on the CPU
    View<float, 1> scale;       // (2)
    View<bf16, 1> scales = {};  // of the blocks, where the format has them
  };
  void plan_copy(MemoryPlan& plan, const std::string& name, Copy& copy, FakeWay way,
                 Backend backend) const;
  void make(Exec on, const QuantScratch& scratch, const Copy& copy, FakeWay way,
            View<double, 1> measures, uint32_t site) const;
  void pack(Exec on, const Copy& copy) const;
  WeightMatrix<bf16> matrix(const Copy& copy) const;
  WeightStack<bf16> stack(const Copy& copy) const;

  const std::string name_;
  const bool one_;  // fprop_ serves both
  Copy fprop_, dgrad_;
  int64_t experts_ = 0, out_ = 0, in_ = 0;  // experts 0: a matrix
  View<const float, 1> master_;
  View<int32_t, 1> offsets_;  // (E + 1) rows of each expert
};

}  // namespace assay
