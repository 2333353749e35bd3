// Where an op runs: a pool of CPU threads or a CUDA stream. Passed first and by value to every op.
//
// The CPU pool is OpenMP. Results never depend on the number of threads: work is cut into pieces
// whose size depends on the problem only, and partial sums are added in the order of the pieces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"
#include "base/view.h"

namespace assay {

class Profile;
namespace gpu {
struct Context;  // cuda/context.h
}

// Where ops run; memory is planned for one of them.
enum class Backend { kCpu, kGpu };

struct Exec {
  int threads = 1;
  // Planned scratch for matrix products, as cuBLASLt's workspace: at least the largest
  // *_workspace_bytes() of the ops called. Its contents are undefined between calls.
  View<std::byte, 1> workspace = {};
  Profile* profile = nullptr;   // cuda/profile.h
  gpu::Context* gpu = nullptr;  // where kernels run; null: the CPU
};

// Calls f(i) once for each i in [0, n). A thread gets a contiguous range, the same in every call
// with the same n, so that an op finds in the cache what the previous op left there.
template <typename F>
void parallel_for(Exec on, int64_t n, F&& f) {
  const int threads = on.threads < n ? on.threads : static_cast<int>(n);
  if (threads <= 1) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; ++i) f(i);
}

// Cuts [0, n) into pieces of `grain` (the last may be shorter) and calls f(begin, end) for each.
template <typename F>
void parallel_ranges(Exec on, int64_t n, int64_t grain, F&& f) {
  const int64_t pieces = ceil_div(n, grain);
  parallel_for(on, pieces, [&](int64_t p) {
    const int64_t end = (p + 1) * grain;
    f(p * grain, end < n ? end : n);
  });
}

}  // namespace assay
