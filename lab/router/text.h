// A router analysis as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/router/analysis.h"

namespace assay {

std::string router_text(const RouterAnalysis& analysis);
nlohmann::ordered_json router_json(const RouterAnalysis& analysis);

}  // namespace assay
