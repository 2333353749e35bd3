// What this machine can do, measured: the denominators of the benches and of mfu on a CPU.
#pragma once

#include "cuda/exec.h"

namespace assay {

enum class LimitType { kFloat, kBf16 };

// Dense products by ops/linear.h on on.threads threads: the fastest run among a few large shapes,
// about half a second. Allocates what it needs; on.workspace is not used.
double measured_matmul_limit_gflops(Exec on, LimitType type);

// Bytes read and written a second by a plain copy of 128 MiB on on.threads threads: the best of
// eight.
double measured_copy_gb_per_s(Exec on);

}  // namespace assay
