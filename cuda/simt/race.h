// Reports of the SIMT emulator to the race detector. race_off.cpp has empty bodies; a program whose
// kernels are compiled with -fsanitize=thread links assay_simt_race, which has the real ones and
// replaces the compiler's run-time library.
//
// A race: two accesses of one location by two threads of a grid, one of them a write, without a
// barrier that orders them. sync_block, sync_warp, named barriers, mbarriers and the barrier of a
// cluster order; shuffles and votes do not, as CUDA says. Accesses of one byte are not checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

class ThreadSet;
struct Block;

bool race_detector_present();

// Threads are named by their slots in the cluster.
void race_grid_begins(uint64_t first_block);
void race_cluster_begins(int blocks);
void race_block_ends(const Block& block);  // before its last thread exits
void race_block_barrier(const Block& block);
void race_warp_barrier(int first_lane, uint32_t lanes);
void race_named_barrier_arrives(int id);
void race_named_barrier_completes(int id, const ThreadSet& waiting, int last);
void race_cluster_barrier_arrives();
void race_cluster_barrier_completes();
void race_cluster_barrier_leaves();
void race_atomic(const void* p, size_t bytes, SourceLocation here);
void race_atomic_load(const void* p, size_t bytes, SourceLocation here);
void race_fence_device();

}  // namespace assay::simt
