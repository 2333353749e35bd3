// CORE scored by several processes: each answers every N-th row of each task (eval/core_run.h,
// CorePart) and writes what it found; merged, that is the report of one process, but for the
// seconds, which are added up.
#pragma once

#include <string>
#include <vector>

#include "lab/runs/core_report.h"

namespace assay {

// "2/4": the second of four. UserError for anything else.
CorePart parse_core_part(const std::string& text);

// `report` of the rows of `part`.
nlohmann::ordered_json core_part_json(const CoreReport& report, const CorePart& part);

// UserError where a file is no part, is damaged or of another evaluation, where a part is missing
// or given twice.
CoreReport merge_core_parts(const std::vector<std::string>& files);

}  // namespace assay
