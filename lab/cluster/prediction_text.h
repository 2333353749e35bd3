// Predictions as a table for the terminal, and as JSON. Both say that nothing of it was measured.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lab/cluster/predict.h"

namespace assay {

struct ModelPredictions {
  std::string name;
  int64_t batch_tokens = 0;
  int64_t experts = 0;               // of a layer; 0: dense
  std::vector<Prediction> mappings;  // the first on one GPU, to which the others are compared
};

// Ops of the predictions whose share of a limit is assumed.
std::set<std::string> assumed_ops(const std::vector<ModelPredictions>& models);

// Of the mappings on as many GPUs that fit, the fastest with overlap.
bool is_best(const ModelPredictions& model, const Prediction& p);

std::string predictions_text(const std::vector<ModelPredictions>& models, const Cluster& cluster,
                             const OpTimes& times);
nlohmann::ordered_json predictions_json(const std::vector<ModelPredictions>& models,
                                        const Cluster& cluster, const OpTimes& times);

}  // namespace assay
