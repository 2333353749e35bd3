// CORE scored by several processes: each answers every N-th row of each task, or every N-th block
// of rows (eval/core_run.h, CorePart), and writes a part file. The merged parts equal the report of
// one process, except for the seconds, which are summed.
#pragma once

#include <string>
#include <vector>

#include "lab/runs/core_report.h"

namespace assay {

// "2/4": the second of four. UserError for anything else.
CorePart parse_core_part(const std::string& text);

// The content of a part file; `report` covers the rows of `part`.
nlohmann::ordered_json core_part_json(const CoreReport& report, const CorePart& part);

// UserError if a file is not a part, is damaged or belongs to another evaluation, or if a part is
// missing or given twice.
CoreReport merge_core_parts(const std::vector<std::string>& files);

}  // namespace assay
