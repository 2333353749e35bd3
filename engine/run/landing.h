// A step with an evaluation and a checkpoint that is kept.
#pragma once

#include <cstdint>

namespace assay {

struct Landing {
  double fraction = 0;  // of the contract's horizon
  int64_t step = 0;     // steps done
  bool operator==(const Landing&) const = default;
};

}  // namespace assay
