// The recipe of the public run of June 2024 (modded-nanogpt, AdamW, commit b6b0a0d) against the
// configuration of a run of ours: item by item, from the values in both. An anchor whose recipe
// differs is a neighbourhood, not a control.
#pragma once

#include <string>
#include <vector>

#include "lab/compare/anchor_log.h"
#include "lab/runs/run_record.h"

namespace assay {

enum class Match { kYes, kNo, kUnknown };
const char* match_name(Match match);  // "yes", "no", "cannot be told"

struct RecipeItem {
  std::string what;
  std::string anchor;
  std::string ours;
  Match match = Match::kUnknown;
};

std::vector<RecipeItem> anchor_recipe(const RunRecord& run);

// Whether the log is byte for byte the published one that the recipe was read for.
bool is_published_anchor(const AnchorLog& log);

// Why losses of the run cannot be set against the anchor's number by number; "" when nothing speaks
// against it.
std::string anchor_obstacle(const RunRecord& run);

}  // namespace assay
