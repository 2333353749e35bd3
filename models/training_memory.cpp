#include "models/training_memory.h"

#include <sstream>

namespace assay {

TrainingMemory::TrainingMemory(const Config& config, Recipe recipe, int32_t mask_id,
                               Backend backend)
    : model(make_decoder(config.model, recipe,
                         {.micro_batch = config.run.micro_batch,
                          .sequence = config.run.sequence,
                          .mask_id = mask_id,
                          .backend = backend})),
      optimizer(std::make_unique<Optimizer>(config.optimizer, *model)) {
  model->plan(plan);
  optimizer->plan(plan);
  plan.add(Section::kScratch, "workspace", workspace, {model->workspace_bytes()});
}

void TrainingMemory::bind(Exec& on) {
  on.workspace = workspace;
  model->bind(on);
  optimizer->bind();
}

std::string memory_plan_text(const Config& config) {
  const TrainingMemory memory(config, resolve_recipe(config.precision.recipe), -1);
  std::ostringstream text;
  memory.plan.print(text);
  return text.str();
}

}  // namespace assay
