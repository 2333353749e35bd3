// Empty bodies, for programs without the race detector.
#include "cuda/simt/block.h"
#include "cuda/simt/race.h"

namespace assay::simt {

void note_read(const void*, size_t, SourceLocation) {}
void note_write(const void*, size_t, SourceLocation) {}
void note_async_read(const void*, size_t, SourceLocation) {}
void note_async_write(const void*, size_t, SourceLocation) {}
void note_release(const void*) {}
void note_acquire(const void*) {}
void note_proxy_fence() {}
void note_remote(const Block&) {}

bool race_detector_present() {
  return false;
}
void race_grid_begins(uint64_t) {}
void race_cluster_begins(int) {}
void race_block_ends(const Block&) {}
void race_block_barrier(const Block&) {}
void race_warp_barrier(int, uint32_t) {}
void race_named_barrier_arrives(int) {}
void race_named_barrier_completes(int, const ThreadSet&, int) {}
void race_cluster_barrier_arrives() {}
void race_cluster_barrier_completes() {}
void race_cluster_barrier_leaves() {}
void race_atomic(const void*, size_t, SourceLocation) {}
void race_atomic_load(const void*, size_t, SourceLocation) {}
void race_fence_device() {}

}  // namespace assay::simt
