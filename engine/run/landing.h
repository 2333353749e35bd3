// A step that a run stops at for a moment: evaluation and a checkpoint that stays.
#pragma once

#include <cstdint>

namespace assay {

struct Landing {
  double fraction = 0;  // of the contract's horizon
  int64_t step = 0;     // steps done
  bool operator==(const Landing&) const = default;
};

}  // namespace assay
