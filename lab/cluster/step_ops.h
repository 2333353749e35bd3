// The ops of one training step on a GPU in recipe bf16, with their costs: the cost functions of
// the ops, called with the shapes that the decoder gives them. The step is that of commit f7148fb,
// whose profiles a test compares with the list; since then some of its ops are part of others.
// Where cost functions count less than then, the list has shapes that give what those profiles
// counted: their shares of the limits go with these bytes. The backward of a router of so many
// experts that the program takes its sparse product is that of commit cbd625c: f7148fb had none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cost.h"
#include "engine/config/config.h"
#include "engine/parameter_spec.h"

namespace assay {

inline constexpr const char* kListedCommit = "f7148fb";

// Calls of one op with one shape. Cost: of one call.
struct OpCall {
  std::string op;
  int64_t calls = 1;
  Cost cost;
};

// A part of backward, after which the gradients of the parameters from `first_parameter` on, by
// their index in Model::parameters(), do not change any more in this micro-batch.
struct BackwardStage {
  std::vector<OpCall> ops;
  size_t first_parameter = 0;
};

struct StepOps {
  std::vector<OpCall> forward;
  std::vector<BackwardStage> backward;  // in their order; the loss is the first
  std::vector<OpCall> zeroing;          // once a part
};

// What expert parallelism changes of a micro-batch: a rank computes the rows that `expert_ranks`
// ranks send it, in a call for each of them, with E / expert_ranks experts, and adds up what the
// rows of each rank give to the gradients. The ops that this adds are those of today's step; a test
// compares them with a profile of the program.
struct ExpertShare {
  int64_t expert_ranks = 1;
};

// specs: of the trained parameters, in their order. UserError where the model is of a kind whose
// step is not listed: it names what of it.
StepOps ops_of_step(const Config& config, const std::vector<ParameterSpec>& specs,
                    const ExpertShare& share = {});
// Of router_forward, by its cost function.
double router_flops_of_logit();
// What adds up the gradients, so many values, of a rank's `parts` parts (engine/part_sums.h); none
// of one part.
std::vector<OpCall> ops_of_part_sums(int64_t parts, int64_t values);
// The optimizer's step on `elements` parameters of each of these matrices or vectors.
std::vector<OpCall> ops_of_update(const std::vector<int64_t>& elements_of_matrices,
                                  const std::vector<int64_t>& elements_of_vectors);

}  // namespace assay
