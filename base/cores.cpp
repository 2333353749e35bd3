#include "base/cores.h"

#include <omp.h>

#include <algorithm>

namespace assay {

// Not the mask of this thread: OpenMP may have bound it to one core (OMP_PROC_BIND).
int usable_cores() {
  return std::max(1, omp_get_num_procs());
}

}  // namespace assay
