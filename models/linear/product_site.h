// Which weight's products are meant, where they are in the model, and in which formats they are.
#pragma once

#include <string>

#include "models/linear/precision.h"

namespace assay {

// Widths C and F of experts whose weights are one stack; 0: the weight is a matrix.
struct ExpertWidths {
  int64_t hidden = 0, ffn = 0;
};
// The model's expert widths for routed experts, else 0.
ExpertWidths expert_widths(ProductRole role, const ModelConfig& model);

struct ProductSite {
  std::string weight;  // name of the parameter
  ProductRole role;
  int64_t layer;
  ProductFormats formats;
  int native_capability = 0;  // compute capability for native products; 0: all simulated
  ExpertWidths experts = {};

  ProductSite named(std::string name) const {
    ProductSite site = *this;
    site.weight = std::move(name);
    return site;
  }
};

}  // namespace assay
