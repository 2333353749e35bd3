// Units and meanings of what telemetry.db holds. docs/telemetry.md has the same lists.
#pragma once

#include <string>

#include "lab/telemetry/tables.h"

namespace assay {

// The column of a scalar or span of the table steps; a name that is not known has no text.
TelemetryColumn step_column(const std::string& name);
// A table other than steps, with all columns of the current version and no rows.
TelemetryTable stored_table(const std::string& name);
// The names of those tables, in the order of the export.
std::span<const char* const> stored_table_names();
// The table of the database that holds it: router_layer for router_layers.
std::string database_table(const std::string& name);

}  // namespace assay
