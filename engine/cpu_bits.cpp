#include "engine/cpu_bits.h"

#include "ops/instruction_path.h"

namespace assay {

bool multiplies_bf16(const Config& config, CpuWork work) {
  if (config.precision.recipe != "fp32") return true;
  return work == CpuWork::kTraining && config.optimizer.kind == OptimizerKind::kMuon;
}

std::string deciding_instructions(const std::string& path, const Config& config, CpuWork work) {
  return instruction_path_text(multiplies_bf16(config, work) ? path : float_instruction_path(path));
}

}  // namespace assay
