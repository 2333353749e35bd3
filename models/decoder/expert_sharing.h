// What the MoE sublayers of a decoder have in common when ranks share the experts
// (models/decoder/expert_exchange.h).
#pragma once

#include <cmath>
#include <optional>

#include "comm/layout.h"
#include "comm/rank_groups.h"
#include "engine/config/model_config.h"
#include "engine/part_sums.h"

namespace assay {

template <typename T>
struct ExpertSharing {
  Layout layout;
  RankGroups groups = {};  // null if memory is only planned
  Backend backend = Backend::kCpu;
  int64_t rows = 0;          // R, that a rank receives in one round
  View<T, 2> computed = {};  // (R, C)   outputs of experts, or gradients of their inputs
  View<T, 2> gradient = {};  // (R, C)   received
  // The gradients of a layer's experts from the rows of one source, gate_up then down; then the sum
  // of all sources, in the tree of the parts of a batch.
  View<float, 1> weight_gradient = {};
  std::optional<PartSums> tree = {};

  bool on() const { return layout.expert_ranks > 1; }

  // assignments: of a rank's largest micro-batch. relative_rows: R over the average, which is the
  // same number.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t assignments,
            double relative_rows) {
    const MoeConfig& moe = *config.moe;
    rows = std::max<int64_t>(1, int64_t(std::ceil(relative_rows * double(assignments))));
    rows = std::min(rows, assignments * layout.expert_ranks);
    plan.add(Section::kScratch, "exchange.computed", computed, {rows, config.hidden});
    plan.add(Section::kScratch, "exchange.gradient", gradient, {rows, config.hidden});
    const int64_t values = moe.experts / layout.expert_ranks * 3 * moe.expert_ffn * config.hidden;
    plan.add(Section::kSums, "exchange.weight_gradient", weight_gradient, {values});
    tree.emplace(layout.expert_ranks);
    tree->plan(plan, "exchange.sources", values);
  }
};

}  // namespace assay
