// Runs a kernel on the CPU: the SIMT emulator's side of a launch.
//
//   simt::run_grid("rmsnorm_forward", {blocks}, {32, 8}, 0,
//                  [&] { rmsnorm_forward_kernel<float>(a); });
//
// Blocks run one after another, those of a cluster together; their threads are fibers of the
// calling thread. The schedule sets the order; a correct kernel gives the same bits under every
// schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "cuda/gpu_kind.h"
#include "cuda/simt/language.h"

namespace assay::simt {

// A defect of the kernel (or its launch) that the emulator found; the text is one line.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// kForward: the lowest thread that can run, blocks from the first; asynchronous copies land as late
// as possible. kReverse: the highest thread, blocks from the last; copies land at once. kRandom:
// all at random, by seed.
enum class Order { kForward, kReverse, kRandom };
struct Schedule {
  Order order = Order::kForward;
  uint64_t seed = 0;
};
// The initial schedule is the environment variable SIMT_ORDER (fwd, rev, rnd:SEED), or fwd.
void set_schedule(Schedule schedule);
Schedule schedule();
Schedule parse_schedule(const std::string& text);  // throws UserError
std::string to_string(Schedule schedule);

// A block that switches between its threads more often than this is reported as a livelock.
void set_switch_limit(uint64_t switches);

// Calls body() once per thread of each block, on a GPU of that kind. `cluster` consecutive blocks
// along x form a cluster; they have at most 2048 threads together, which on a GPU need not be so.
// Throws KernelError, or whatever body throws.
void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
              const std::function<void()>& body, const gpu::GpuKind& kind = gpu::gpu_kind(90),
              unsigned cluster = 1);

}  // namespace assay::simt
