#include "session/other_instructions.h"

#include "engine/cpu_bits.h"
#include "lab/runs/launches.h"
#include "ops/instruction_path.h"

namespace assay {

std::string other_instructions_before(const std::string& run, const Config& config,
                                      int64_t steps_done) {
  const auto launches = contributing_launches(run, steps_done);
  if (launches.empty()) return "";
  const std::string last = instructions_over_launches({launches.back()}, config);
  const std::string now = deciding_instructions(instruction_path(), config, CpuWork::kTraining);
  if (last.empty() || last == now) return "";
  return "the steps so far were computed with " + instructions_over_launches(launches, config) +
         ", these with " + now + ": other bits than without the stop";
}

}  // namespace assay
