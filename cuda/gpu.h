// The kernel language: the one header with all that a kernel may use of the GPU. A .cu file has it
// beside its op's header, cuda/launch.h and what it needs of ops/gpu.
//
// Every wrapper has two bodies: PTX or an intrinsic under nvcc, and a call of the SIMT emulator
// (cuda/simt) under the host compiler. The kernel source is the same for both. Inline PTX is only
// in cuda/kernel.
//
// Rules for kernels:
//
//   shared memory   Declare it with GPU_SHARED(float, red, [32]) or GPU_DYNAMIC_SHARED(bf16, tile).
//                   The emulator gives every block fresh arrays filled with NaN and reports writes
//                   past their ends.
//   waiting         Wait only in a blocking wrapper (mbarrier_wait, sync_block, ...). The emulator
//                   switches threads only there: a loop that polls a flag never ends.
//   clusters        sync_cluster before the first access to another block and before the end; the
//                   emulator runs the blocks of a cluster together (at most 2048 threads).
//   sync_block      All threads of the block that have not exited reach the same call, on the same
//                   source line. Warp-specialised branches synchronise with named_barrier_sync.
//   warps           Exchanges and votes involve all 32 lanes. Masks for sync_warp come from
//                   ballot(): there is no __activemask().
//   accumulators    The accumulator of a wgmma is one named local array. Do not read, write or copy
//                   it between the wgmma and its wgmma_wait.
//   arithmetic      Compute in float; bf16 is a storage type (base/bf16.h).
//
//   No floating-point atomics (the order of additions would change the bits; reduce_add is for one
//   thread per element), no CUB (the host compiler has no CUDA toolkit; tests/ops/cub is an
//   exception), no asm in a .cu file.
#pragma once

#include "cuda/kernel/accumulators.h"
#include "cuda/kernel/async.h"
#include "cuda/kernel/cluster.h"
#include "cuda/kernel/language.h"
#include "cuda/kernel/mma.h"
#include "cuda/kernel/tma.h"
#include "cuda/kernel/warp.h"
#include "cuda/kernel/wgmma.h"
