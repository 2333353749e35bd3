#include "bench/peers/onednn.h"

namespace assay {

std::function<void()> onednn_product(Pass, LimitType, int64_t, int64_t, int64_t) {
  return {};
}

}  // namespace assay
