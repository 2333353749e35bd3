// Ways of the GPU that a faster one has replaced, kept until a GPU has timed both. The environment
// takes the old ones: ASSAY_GPU_PREDECESSORS=wgrad_add,... names some, `all` takes all. One whose
// successor has been measured leaves this list together with its code.
#pragma once

#include <cstdint>
#include <string>

namespace assay::gpu {

enum class Predecessor {
  kWgradAdd,    // the experts' weight gradient is read, added to and written (ops/grouped_linear.h)
  kFfnDswiglu,  // the down-dgrad of a dense FFN and SwiGLU's gradient are two kernels
  kTileFetch,   // the experts' kernels read a tile's place in the list, and the maps, when needed
  kRouterProducts,  // the router's gradient with many experts: two dense products
  kWorkLists,       // the experts' lists: cut by one block, ordered from memory
  kRouterShared,    // the router has a token's keys in shared memory for any number of experts
  kNormReads,       // RMSNorm's backward reads dresid after the sum over a row
  kDbranch,         // the gradient of a branch with a gain is written before its products read it
  kNormAdds,        // RMSNorm adds a branch to the stream, not the branch's last op
  kRopeBackward,    // attention's dq and dk are turned back by a kernel of their own
  kAttentionForwardBlocks,   // attention forward by wgmma has a block for each 128 queries
  kAttentionForwardOrder,    // its warpgroups issue their products in any order
  kAttentionBackwardBlocks,  // attention backward by wgmma: a block for each 128 keys or queries
  kGradientZeros,            // all gradients are zeroed, and the first micro-batch adds to them
};
struct PredecessorName {
  Predecessor which;
  const char* name;
};
inline constexpr PredecessorName kPredecessorNames[] = {
    {Predecessor::kWgradAdd, "wgrad_add"},
    {Predecessor::kFfnDswiglu, "ffn_dswiglu"},
    {Predecessor::kTileFetch, "tile_fetch"},
    {Predecessor::kWorkLists, "work_lists"},
    {Predecessor::kRouterShared, "router_shared"},
    {Predecessor::kRouterProducts, "router_products"},
    {Predecessor::kNormReads, "norm_reads"},
    {Predecessor::kDbranch, "dbranch"},
    {Predecessor::kNormAdds, "norm_adds"},
    {Predecessor::kRopeBackward, "rope_backward"},
    {Predecessor::kAttentionForwardBlocks, "attention_forward_blocks"},
    {Predecessor::kAttentionForwardOrder, "attention_forward_order"},
    {Predecessor::kAttentionBackwardBlocks, "attention_backward_blocks"},
    {Predecessor::kGradientZeros, "gradient_zeros"},
};

// The other way round: ways that should be faster, but that are not taken before a GPU has run
// them, because a mistake in them could make it hang. ASSAY_GPU_TRY=multicast,... takes some, `all`
// takes all. One that a GPU has run and timed becomes the way, and what it replaces a predecessor.
enum class Trial {
  kMulticast,  // the experts' products by clusters of two blocks that share the loads of weights
  kTmaStore,   // the experts' products without SwiGLU store whole warps of rows by TMA
};
struct TrialName {
  Trial which;
  const char* name;
};
inline constexpr TrialName kTrialNames[] = {{Trial::kMulticast, "multicast"},
                                            {Trial::kTmaStore, "tma_store"}};

template <typename Way>
struct Ways {
  uint32_t bits = 0;
  constexpr bool has(Way way) const { return (bits >> int(way) & 1) != 0; }
  constexpr void add(Way way) { bits |= uint32_t{1} << int(way); }
};
using Predecessors = Ways<Predecessor>;
using Trials = Ways<Trial>;

// Those that ASSAY_GPU_PREDECESSORS and ASSAY_GPU_TRY name. UserError if a name is not in the list.
Predecessors predecessors_by_environment();
Trials trials_by_environment();
// "wgrad_add,...", or "" if there are none.
std::string names_of(Predecessors predecessors);
std::string names_of(Trials trials);

}  // namespace assay::gpu
