// Running a kernel on the CPU: the executor's side of a launch.
//
//   simt::run_grid("rmsnorm_forward", {blocks}, {32, 8}, 0, [&] { rmsnorm_forward_kernel<float>(a); });
//
// Blocks run one after another, the threads of a block as fibers of the calling thread. The order
// is the schedule's; a kernel that is right gives the same bits under each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "cuda/simt/language.h"

namespace assay::simt {

// A defect of the kernel (or its launch) that the executor noticed; one line.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Order {
  kForward,  // the lowest thread that can run, the first block; asynchronous copies land as late as possible
  kReverse,  // the highest, the last; copies land at once
  kRandom    // all at random, by seed
};
struct Schedule {
  Order order = Order::kForward;
  uint64_t seed = 0;
};
// At the start: what the environment variable SIMT_ORDER says (fwd, rev, rnd:SEED), or forward.
void set_schedule(Schedule schedule);
Schedule schedule();
Schedule parse_schedule(const std::string& text);  // throws UserError
std::string to_string(Schedule schedule);

// A block that switches more often than this between its threads is taken for one that never ends.
void set_switch_limit(uint64_t switches);

// Calls body() for each thread. Throws KernelError, or whatever body throws.
void run_grid(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
              const std::function<void()>& body);

}  // namespace assay::simt
