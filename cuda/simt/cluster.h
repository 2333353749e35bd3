// The SIMT emulator's clusters: blocks that run together and reach each other's shared memory.
// Kernels use them through cuda/kernel/cluster.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

int cluster_rank(SourceLocation here = SourceLocation::caller());
void cluster_arrive(SourceLocation here = SourceLocation::caller());
void cluster_wait(SourceLocation here = SourceLocation::caller());
void mbarrier_arrive_cluster(uint64_t* barrier, int rank, SourceLocation here);

// For wrappers that write to the shared memory of a cluster's block: the same place there as
// `shared` here. Fails if there is no such block, or if it has ended.
void* in_cluster(const char* what, void* shared, int rank, SourceLocation here);

}  // namespace assay::simt
