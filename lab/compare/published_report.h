// A published study as text and as JSON; each table with quantities that runs here have gets a row
// for each model.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/compare/compare.h"
#include "lab/compare/published.h"

namespace assay {

// Names and titles of the studies: lines, and {NAME: TITLE}.
std::string published_list_text();
nlohmann::ordered_json published_list_json();

std::string published_text(const PublishedStudy& study, const std::vector<ModelRow>& models,
                           std::optional<double> target_loss);
nlohmann::ordered_json published_json(const PublishedStudy& study,
                                      const std::vector<ModelRow>& models,
                                      std::optional<double> target_loss);

}  // namespace assay
