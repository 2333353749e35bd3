// Threads of the CPU pool that wait must sleep, not spin: on a shared core a spinning thread takes
// the time of the one it waits for, and every small product slows down. The OpenMP runtime reads
// its waiting policy before main, so a program that wants another one has to start itself again.
#pragma once

namespace assay {

// Call first in main. Returns at once when the policy is set already (by the first call, or by the
// user); otherwise replaces the process by itself with OMP_WAIT_POLICY=passive.
void ensure_passive_waiting(char** argv);

}  // namespace assay
