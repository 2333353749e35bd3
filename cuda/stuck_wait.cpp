#include "cuda/stuck_wait.h"

#include "base/check.h"

namespace assay::gpu {

std::string stuck_wait_text(uint64_t word) {
  if (word == 0) return "";
  const StuckWait w = unpacked(word);
  return strprintf("; block %u, thread %u waits at the mbarrier at shared address 0x%x, parity %u",
                   w.block, w.thread, w.barrier, w.parity);
}

}  // namespace assay::gpu
