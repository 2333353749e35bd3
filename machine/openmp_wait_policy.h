// Makes waiting threads of the CPU pool sleep instead of spin: on a shared core a spinning thread
// takes time from the one it waits for, which slows down every small product. The OpenMP runtime
// reads its wait policy before main, so a program that needs another one has to restart itself.
#pragma once

namespace assay {

// Call first in main. Returns at once if OMP_WAIT_POLICY is set, by an earlier call or by the user;
// otherwise restarts the process with OMP_WAIT_POLICY=passive.
void ensure_passive_waiting(char** argv);

}  // namespace assay
