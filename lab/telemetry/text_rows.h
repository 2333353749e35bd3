// Rows of telemetry as CSV and as JSON lines. Numbers have the fewest digits that read back equal.
//
//             absent    infinite
//   CSV       empty     inf, -inf       what pandas.read_csv reads as NaN and inf
//   JSON      null      "inf", "-inf"   JSON has neither
//
// Bytes of a text that are not UTF-8 become U+FFFD.
#pragma once

#include <string>

#include "lab/telemetry/tables.h"

namespace assay {

// The names of the columns; with a line end, like the others.
std::string csv_header(const TelemetryTable& table);
void append_csv(TelemetryRow row, std::string& text);
// {"table":"steps","step":1,...}
void append_json(const TelemetryTable& table, TelemetryRow row, std::string& text);

// Writes TABLE.csv into the folder, complete or not at all, and returns its path.
std::string write_csv(const TelemetryTables& tables, const TelemetryTable& table,
                      const std::string& folder);

}  // namespace assay
