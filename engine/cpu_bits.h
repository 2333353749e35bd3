// Which instructions of the CPU decide the bits of what a configuration computes there.
#pragma once

#include <string>

#include "engine/config/config.h"

namespace assay {

enum class CpuWork { kTraining, kEvaluation };

// Whether the CPU multiplies bf16. Recipe `auto`, which is not resolved, counts as bf16. In recipe
// fp32 neither an override nor precision.bf16_tail makes products of bf16; Muon does in training.
bool multiplies_bf16(const Config& config, CpuWork work);

// The instructions of a path (ops/instruction_path.h) that decide the bits, for people: "AMX",
// without products of bf16 "AVX-512".
std::string deciding_instructions(const std::string& path, const Config& config, CpuWork work);

}  // namespace assay
