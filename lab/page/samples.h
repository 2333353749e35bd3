// The texts that a run generated while it trained (eval.samples).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

inline constexpr size_t kSampleSteps = 12;      // shown, the first and the last among them
inline constexpr size_t kLongestSample = 4000;  // bytes of a text; more are cut off

// [{"step", "texts": [{"prompt", "text"}]}] by step; [] for a run without samples. Lines that are
// not JSON are left out: the last one may be half written.
nlohmann::ordered_json report_samples(const std::string& run);

}  // namespace assay
