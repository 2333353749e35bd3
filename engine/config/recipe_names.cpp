#include "engine/config/training_config.h"

namespace assay {

std::vector<std::string> recipe_names() {
  return {"auto",  "fp32",  "bf16",       "fp8_tensor", "fp8_block",
          "mxfp8", "nvfp4", "mxfp8_nmoe", "mxfp4_nmoe"};
}

}  // namespace assay
