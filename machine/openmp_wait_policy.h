// Makes waiting threads of the CPU pool spin for a moment, then sleep. Waking a sleeping thread
// takes longer than many an op: a step of a small model became 1.15 times as fast on two cores. But
// on a shared core a thread that spins for long takes time from the one it waits for. The OpenMP
// runtime reads its settings before main, so a program that needs others has to restart itself.
#pragma once

namespace assay {

// Call first in main. Returns at once if OMP_WAIT_POLICY is set, by an earlier call or by the user;
// otherwise restarts the process with OMP_WAIT_POLICY=passive and, unless the user set it, with
// GOMP_SPINCOUNT for about a tenth of a millisecond. Passive threads do not spin at all where there
// are more of them than CPUs.
void ensure_short_spinning(char** argv);

}  // namespace assay
