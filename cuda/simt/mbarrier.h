// The mbarrier of the executor, for the copies that complete bytes on it. What kernels call is in
// async.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

// Bulk copies that count for the phase in which they were issued. begin at the issue, end when the
// bytes are there.
uint32_t mbarrier_copy_begins(const char* what, uint64_t* barrier,
                              SourceLocation here);  // the phase
void mbarrier_copy_ends(const char* what, uint64_t* barrier, uint32_t phase, int64_t bytes,
                        SourceLocation here);
// An arrival from code that runs for a thread after it went on (cp_async_mbarrier_arrive).
void mbarrier_arrive_landed(const char* what, uint64_t* barrier, SourceLocation here);

}  // namespace assay::simt
