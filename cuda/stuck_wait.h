// Where a kernel hangs. In a build with CMake's ASSAY_GPU_WAIT_LIMIT_S a thread that waits at an
// mbarrier for longer writes one word to host memory and traps; the error then says what is in it.
// (Not printf: a call makes ptxas serialise wgmma, which can hide the error. Attention's
// backward kernels have no register to spare, so there ptxas does it all the same.)
#pragma once

#include <cstdint>
#include <string>

namespace assay::gpu {

struct StuckWait {
  uint32_t block;    // its number in the grid
  uint32_t thread;   // below 1024
  uint32_t barrier;  // address in shared memory, a multiple of 8, below 2^19
  uint32_t parity;
};
// One word, not 0, because threads that write at the same time must not mix theirs.
constexpr uint64_t packed(const StuckWait& w) {
  return uint64_t{1} << 63 | uint64_t{w.parity & 1} << 62 | uint64_t{w.thread & 1023} << 48 |
         uint64_t{w.barrier / 8 & 0xFFFF} << 32 | w.block;
}
constexpr StuckWait unpacked(uint64_t word) {
  return {.block = uint32_t(word),
          .thread = uint32_t(word >> 48 & 1023),
          .barrier = uint32_t(word >> 32 & 0xFFFF) * 8,
          .parity = uint32_t(word >> 62 & 1)};
}
// "; block 3, thread 96 waits at the mbarrier at shared address 0x400, parity 1"; "" for 0.
std::string stuck_wait_text(uint64_t word);

// Each file of kernels has a variable with the word's address, which opening the device sets.
using SetStuckWaitPlace = void (*)(uint64_t* place);
struct StuckWaitFile {
  explicit StuckWaitFile(SetStuckWaitPlace set);
};
void open_stuck_waits();  // nothing, if no file of the program has such a variable
uint64_t stuck_wait();    // 0: none

}  // namespace assay::gpu
