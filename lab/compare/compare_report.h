// A comparison as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/compare/anchor_log.h"
#include "lab/compare/compare.h"
#include "lab/compare/published.h"

namespace assay {

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

// The public run, and the gap of each model to it; `models` may be empty. target_loss is the bound
// of "first evaluation at or below", in nats.
std::string anchor_text(const AnchorLog& anchor, double target_loss,
                        const std::vector<ModelRow>& models);
nlohmann::ordered_json anchor_json(const AnchorLog& anchor, double target_loss,
                                   const std::vector<ModelRow>& models);

// A published study; each table with quantities that runs here have gets a row for each model.
std::string published_text(const PublishedStudy& study, const std::vector<ModelRow>& models,
                           std::optional<double> target_loss);
nlohmann::ordered_json published_json(const PublishedStudy& study,
                                      const std::vector<ModelRow>& models,
                                      std::optional<double> target_loss);

}  // namespace assay
