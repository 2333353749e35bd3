// A router analysis for people and for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/router/analysis.h"

namespace assay {

std::string router_text(const RouterAnalysis& analysis);
nlohmann::ordered_json router_json(const RouterAnalysis& analysis);

}  // namespace assay
