// A comparison for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/compare/anchor_log.h"
#include "lab/compare/compare.h"
#include "lab/compare/published.h"

namespace assay {

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

// The public run, and how far each model is from it; the models may be none. target_loss: of "first
// validation at or below".
std::string anchor_text(const AnchorLog& anchor, double target_loss,
                        const std::vector<ModelRow>& models);
nlohmann::ordered_json anchor_json(const AnchorLog& anchor, double target_loss,
                                   const std::vector<ModelRow>& models);

// A published study, with a row of ours for each model in every table that measures what we do.
std::string published_text(const PublishedStudy& study, const std::vector<ModelRow>& models,
                           std::optional<double> target_loss);
nlohmann::ordered_json published_json(const PublishedStudy& study,
                                      const std::vector<ModelRow>& models,
                                      std::optional<double> target_loss);

}  // namespace assay
