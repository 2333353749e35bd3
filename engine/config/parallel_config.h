// Section parallel: how a step's batch is cut.
#pragma once

#include <cstdint>

#include "engine/config/field_check.h"

namespace assay {

struct ParallelConfig {
  int64_t parts = 1;
};

template <typename V>
void visit(V& v, ParallelConfig& c) {
  v("parts", c.parts,
    "equal parts of a step's batch, whose gradients are added in a balanced tree; the bits of a "
    "run depend on it",
    between(1, 65536));
}

}  // namespace assay
