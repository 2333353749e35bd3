// The canonical text of telemetry.db up to a step, and its SHA-256, which identifies a run's
// telemetry in its receipt.
//
// Per table one header line "table<TAB>column<TAB>..." and one line per row, fields separated by
// tabs, rows in the order of their keys: scalar, span, router_layer, expert_load, eval. Integers in
// decimal, numbers as %.17g (a double reads back equal), absent values as "null", text as a JSON
// string, loads as their counts, unpacked. Rows after the step are left out. So are the tables
// `event` and `meta`: they hold clock times and paths, and grow when a finished run is started
// again.
//
// The hash does not depend on how SQLite laid out its pages, on WAL files, on the version of zstd,
// or on the folder's path. It does cover measured times, because they are claims as well.
// `results_sha256` leaves those out (table span; scalars that end in _s, _ms or _joules, mfu_share,
// peak_rss_bytes, sent_bytes): it is equal for runs that computed the same bits at any speed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

inline constexpr int kTelemetryDumpVersion = 1;

struct TelemetryDump {
  struct Table {
    std::string name;
    int64_t rows = 0;
    std::string sha256;  // of the table's text
  };
  int64_t step = 0;
  std::vector<Table> tables;   // in the order above
  std::string sha256;          // of the whole text
  std::string results_sha256;  // of the text without measured values
};

// UserError if the database is missing or damaged.
TelemetryDump dump_telemetry(const std::string& database, int64_t step);

}  // namespace assay
