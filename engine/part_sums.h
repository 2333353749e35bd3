// Adds the gradients of the parts of a batch (parallel.parts) in a balanced binary tree, so that
// the bits of a step depend on the number of parts and not on how they are spread over processes:
//
//   sum(a, b) = sum(a, m) + sum(m, b),   m = a + the largest power of two below b - a
//
// Part p is a leaf: what its micro-batches accumulated, from zero. Sums of 2^l parts wait in level
// l until their other half is there, as carries do in binary addition, so P parts need
// ceil(log2 P) levels of the size of all gradients. With one part nothing is planned or added.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/exec.h"
#include "cuda/memory_plan.h"

namespace assay {

class PartSums {
 public:
  explicit PartSums(int64_t parts);

  // After Model::plan(): the model's gradients are the section kGradients.
  void plan(MemoryPlan& plan);
  // After MemoryPlan::allocate().
  void bind(const MemoryPlan& plan);
  // The same for other gradients, so many values; name: of the levels in the plan.
  void plan(MemoryPlan& plan, const std::string& name, int64_t values);
  void bind(View<float, 1> gradients);

  int64_t parts() const { return parts_; }
  // Call after the micro-batches of part `part` (from 0, in order). Takes its gradients; those of
  // the last part become the sum of all parts.
  void end_part(Exec on, int64_t part) const;

 private:
  int64_t parts_;
  View<float, 1> gradients_;            // (G)   of all parameters, with the zeros between them
  std::vector<View<float, 1>> levels_;  // (G) each
};

}  // namespace assay
