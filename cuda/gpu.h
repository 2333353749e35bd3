// What a CUDA kernel may use: the one header a .cu file includes beside its op's header.
//
// Every wrapper has two bodies: PTX where nvcc compiles, a call of the executor (cuda/simt) where
// the host compiler does. The kernel's source is the same. Nothing else in the tree contains inline
// PTX.
//
// Rules for kernels, each with its reason:
//   shared memory      GPU_SHARED(float, red, [32]) and GPU_DYNAMIC_SHARED(bf16, tile): bounds, poison, fresh per block
//   waiting            only by a wrapper that blocks (mbarrier_wait, sync_block, ...): a loop on a flag never ends here
//   barriers           one source line a barrier; branches of a block never share one: named_barrier_sync
//   warps              masks come from ballot(); there is no "active mask"
//   accumulators       handed to wgmma stay one named array, untouched until wgmma_wait
//   float arithmetic   in float; bf16 only stores (base/bf16.h)
//   no float atomics, no CUB, no asm in a .cu file
#pragma once

#include "cuda/kernel/async.h"
#include "cuda/kernel/language.h"
#include "cuda/kernel/mma.h"
#include "cuda/kernel/tma.h"
#include "cuda/kernel/warp.h"
#include "cuda/kernel/wgmma.h"
