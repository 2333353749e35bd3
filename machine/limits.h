// Measured limits of this machine's CPU: the denominators of the CPU benches and of mfu on a CPU.
#pragma once

#include "cuda/exec.h"

namespace assay {

enum class LimitType { kFloat, kBf16 };

// GFLOP/s of dense products of normal numbers by ops/linear.h on on.threads threads: the fastest
// run over a few large shapes. So it is the best that this program does, not the hardware's peak.
// Takes about half a second. Allocates what it needs; on.workspace is not used.
double measured_matmul_limit_gflops(Exec on, LimitType type);

// GB/s read plus written by a plain copy of 128 MiB on on.threads threads: the best of nine. Caches
// of 256 MiB and more hold both sides, and then this is their limit.
double measured_copy_gb_per_s(Exec on);

}  // namespace assay
