// The SIMT emulator's mbarrier, for the copies that complete bytes on it. The functions for kernels
// are in async.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

struct Block;

// A bulk copy counts for the phase in which it was issued. begins: at the issue, returns the phase.
// ends: when the bytes have landed.
uint32_t mbarrier_copy_begins(const char* what, uint64_t* barrier, SourceLocation here);
void mbarrier_copy_ends(const char* what, uint64_t* barrier, uint32_t phase, int64_t bytes,
                        SourceLocation here);
// Fails if a copy to the block's shared memory has not landed.
void require_no_copies(Block& block);
// An arrival on behalf of a thread that has already gone on (cp_async_mbarrier_arrive), or without
// a release.
void mbarrier_arrive_landed(const char* what, uint64_t* barrier, SourceLocation here);

}  // namespace assay::simt
