// Whether a run that goes on computes with other instructions of the CPU than before.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace assay {

// What to warn of before this process computes further steps of the run on the CPU; "" if the
// launches that made its steps had the same instructions, as far as they decide the bits of
// `config`, or did not record them. By meta.json as the last launch left it.
std::string other_instructions_before(const std::string& run, const Config& config,
                                      int64_t steps_done);

}  // namespace assay
