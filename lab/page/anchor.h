// The losses of a public run for the loss chart of a report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

// {"name": file, "says": what the log is, "val_loss_nats": series}, of lab/compare/anchor_log.h.
// Lines that are not understood become one sentence in "problem" (else null). UserError as
// read_anchor_log().
nlohmann::ordered_json report_anchor(const std::string& path, int64_t points);

}  // namespace assay
