// The memory of a training run, planned as the run itself plans it: model, optimizer, scratch of the products. The data
// loader and validation add theirs when they know the files.
#pragma once

#include <memory>
#include <string>

#include "engine/optimizer.h"
#include "models/decoder.h"

namespace assay {

struct TrainingMemory {
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  View<std::byte, 1> workspace;
  MemoryPlan plan;

  // Registers everything, allocates nothing.
  TrainingMemory(const Config& config, Recipe recipe, int32_t mask_id,
                 Backend backend = Backend::kCpu);
  // After plan.allocate(on.gpu): addresses, tables, and the workspace in `on`.
  void bind(Exec& on);
};

// What --plan prints; nothing is allocated.
std::string memory_plan_text(const Config& config);

}  // namespace assay
