// The launches of a run, as its meta.json records them: each `assay train` that began or continued
// it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Those that made steps of the run up to steps_done, oldest first. Empty without a meta.json.
std::vector<nlohmann::ordered_json> contributing_launches(const std::string& run,
                                                          int64_t steps_done);

// What meta.json does not have of the launches that made the steps of the run up to steps_done, and
// what is therefore unknown: "there is no runs/a/meta.json: ..."; "" if it has them all.
std::string missing_launches(const std::string& run, int64_t steps_done);

// The steps that were done when it began; 0 if it does not say so in a whole number.
int64_t first_step(const nlohmann::ordered_json& launch);

// The texts or whole numbers under `key` of these launches in their order, each once: "cpu, then
// cuda: NVIDIA H200". absent: of a launch that has none; "": it is left out.
std::string over_launches(const std::vector<nlohmann::ordered_json>& launches,
                          const std::string& key, const std::string& absent = "");
// The instructions of the CPU that these launches computed with: "AMX, then AVX512-BF16". "" of a
// GPU, and where no launch recorded it.
std::string instructions_over_launches(const std::vector<nlohmann::ordered_json>& launches);
// Those of them that decided the bits of a run of `config` (engine/cpu_bits.h).
std::string instructions_over_launches(const std::vector<nlohmann::ordered_json>& launches,
                                       const Config& config);

}  // namespace assay
