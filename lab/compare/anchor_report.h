// A public run, and the gap of each model to it, as text and as JSON. `models` may be empty;
// target_loss is the bound of "first evaluation at or below", in nats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/compare/anchor_log.h"
#include "lab/compare/compare.h"

namespace assay {

std::string anchor_text(const AnchorLog& anchor, double target_loss,
                        const std::vector<ModelRow>& models);
nlohmann::ordered_json anchor_json(const AnchorLog& anchor, double target_loss,
                                   const std::vector<ModelRow>& models);

}  // namespace assay
