// The part of the optimizer that steps matrices with Muon (ops/muon.h, ops/newton_schulz.h).
//
// Every logical matrix is orthogonalised on its own: q, k and v of a packed projection, gate and up
// of a feed-forward layer, and all of these once per expert. Matrices of one parameter that have
// the same shape and stand one after another are a stack, which takes one call. Scratch is that of
// the largest stack.
#pragma once

#include <vector>

#include "engine/config/training_config.h"
#include "engine/model.h"
#include "ops/newton_schulz.h"

namespace assay {

// n matrices (rows, cols) from element `begin` of a parameter.
struct MuonStack {
  int64_t begin, n, rows, cols;
  int64_t size() const { return n * rows * cols; }
};

// The stacks of a parameter, in order, which cover it.
std::vector<MuonStack> muon_stacks(const ParameterSpec& spec);
// What of them lies in elements [first, first + count), which must cut no matrix; `begin` still
// counts from element 0 of the parameter.
std::vector<MuonStack> muon_stacks_within(const std::vector<MuonStack>& stacks, int64_t first,
                                          int64_t count);
// Rows of squares that a parameter needs: those of its stacks, one after another.
int64_t muon_pieces(const std::vector<MuonStack>& stacks);

// The factor of the learning rate.
double muon_factor(MuonAdjust adjust, int64_t rows, int64_t cols);

class MuonUpdates {
 public:
  explicit MuonUpdates(const MuonConfig& config) : config_(config) {}

  // Scratch for the parameters that Muon steps.
  void plan(MemoryPlan& plan, Backend backend, const std::vector<const ParameterSpec*>& owned);

  struct Step {
    const ParameterRef& parameter;
    const std::vector<MuonStack>& stacks;  // neighbours, all or some of its spec
    View<float, 1> momentum;               // of their elements
    View<const float, 1> clip;
    View<double, 2> squares;  // (muon_pieces(), 3), or empty
    double lr, weight_decay;  // of this step
  };
  void step(Exec on, const Step& s) const;

 private:
  NewtonSchulz scratch_of(const MuonStack& stack, Backend backend) const;

  MuonConfig config_;
  View<bf16, 1> x_, product_, gram_, square_;
  View<float, 1> gram_sums_;
  View<double, 1> partial_;
  View<int32_t, 1> offsets_;
  View<std::byte, 1> packed_x_, packed_gram_, workspace_;
};

}  // namespace assay
