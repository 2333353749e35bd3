// Compares the recipe of the public run of June 2024 (modded-nanogpt, AdamW, commit b6b0a0d) with
// the configuration of a run, item by item. If the recipes differ, the anchor gives only the
// expected range of the loss; it is not a control.
#pragma once

#include <string>
#include <vector>

#include "lab/compare/anchor_log.h"
#include "lab/runs/run_record.h"

namespace assay {

enum class Match { kYes, kNo, kUnknown };
const char* match_name(Match match);  // "yes", "no", "unknown"

struct RecipeItem {
  std::string what;
  std::string anchor;
  std::string ours;
  Match match = Match::kUnknown;
};

std::vector<RecipeItem> anchor_recipe(const RunRecord& run);

// True if the log is, byte for byte, the published one that the recipe belongs to.
bool is_published_anchor(const AnchorLog& log);

// Why losses of the run cannot be compared with the anchor's; "" if they can.
std::string anchor_obstacle(const RunRecord& run);

}  // namespace assay
