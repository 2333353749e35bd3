// The texts that a run generated while it trained (eval.samples).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/page/data.h"

namespace assay {

// [{"step", "texts": [{"prompt", "text"}]}] by step; [] for a run without samples. Lines that are
// not JSON are left out: the last one may be half written.
nlohmann::ordered_json report_samples(const std::string& run, const ReportLimits& limits);

}  // namespace assay
