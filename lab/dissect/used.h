// Which experts held-out text reaches (`assay dissect used`), and P_used: the parameters that at
// least one of its tokens used.
//
//   P_used = P_total - sum over MoE layers of unused experts * (3 C F + C)
//
// An unused expert's three matrices and its row of the router do not count. In P_active, of one
// token, all rows of the router do, so that P_used can be below it where few experts are used.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "lab/dissect/damage.h"

namespace assay {

struct UsedReport {
  std::string run, checkpoint, checkpoint_sha256, text_sha256;
  int64_t step = 0, experts = 0, top_k = 0, tokens = 0, sequences = 0;
  int64_t p_total = 0, p_active = 0, p_used = 0;
  std::vector<LayerLoads> loads;
};

int64_t used_experts(const LayerLoads& loads);
// Those that the first `sequences` sequences chose.
int64_t used_experts(const LayerLoads& loads, int64_t sequences);
// `loads` of all MoE layers.
int64_t used_parameters(const Config& config, std::span<const LayerLoads> loads);

std::string used_text(const UsedReport& report);
// p_total, p_active, p_used, and by layer how many experts were used, after each eighth of the text
// and in all, and how often each was chosen.
nlohmann::ordered_json used_json(const UsedReport& report);

// In the folder of the run.
constexpr const char* kUsedFile = "dissect/used.json";
// What kUsedFile of a run says; nullopt without one. UserError if it is damaged.
struct UsedFigures {
  std::string text_sha256;
  int64_t step = 0, tokens = 0, p_used = 0;
};
std::optional<UsedFigures> read_used(const std::string& run);

}  // namespace assay
