// Ways of the GPU that a faster one has replaced, kept until a GPU has timed both. The environment
// takes the old ones: ASSAY_GPU_PREDECESSORS=work_lists,... names some, `all` takes all. One whose
// successor has been measured leaves this list together with its code.
#pragma once

#include <cstdint>

namespace assay::gpu {

enum class Predecessor {
  kRouterProducts,  // the router's gradient with many experts: two dense products
  kWorkLists,       // the experts' lists: cut by one block, ordered from memory
  kGradientZeros,   // all gradients are zeroed, and the first micro-batch adds to them: as fast
                    // with 256 experts, not timed with 4096
};
struct PredecessorName {
  Predecessor which;
  const char* name;
};
inline constexpr PredecessorName kPredecessorNames[] = {
    {Predecessor::kWorkLists, "work_lists"},
    {Predecessor::kRouterProducts, "router_products"},
    {Predecessor::kGradientZeros, "gradient_zeros"},
};

struct Predecessors {
  uint32_t bits = 0;
  constexpr bool has(Predecessor way) const { return (bits >> int(way) & 1) != 0; }
  constexpr void add(Predecessor way) { bits |= uint32_t{1} << int(way); }
};

// Those that ASSAY_GPU_PREDECESSORS names. UserError if a name is not in the list.
Predecessors predecessors_by_environment();

}  // namespace assay::gpu
