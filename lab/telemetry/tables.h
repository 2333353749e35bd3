// telemetry.db as tables for other programs (pandas, TensorBoard): one row per logged step with a
// column per measure, where the database has a row per measure; loads of experts unpacked.
//
//   const TelemetryTables tables("runs/moe/telemetry.db");
//   for (const TelemetryTable& table : tables.all()) tables.read(table, print_row);
//
// Everything is read from one snapshot, also while the run trains. Nothing is written.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/telemetry/reader.h"
#include "engine/telemetry/sqlite.h"

namespace assay {

struct TelemetryColumn {
  enum class Type { kInteger, kNumber, kText };
  std::string name;
  Type type = Type::kNumber;
  std::string unit;  // nats, tokens/s, share, ...; "" for names, and numbers without a unit
  std::string text;  // what it is
};

struct TelemetryTable {
  std::string name;  // steps, evaluations, router_layers, precision, rank_steps, ...
  std::string text;
  std::vector<TelemetryColumn> columns;
  int64_t rows = 0;
};

// std::monostate: not measured. A number may be infinite, never NaN: the database stores NaN as
// not measured.
using TelemetryCell = std::variant<std::monostate, int64_t, double, std::string>;
using TelemetryRow = std::span<const TelemetryCell>;  // one per column

class TelemetryTables {
 public:
  // UserError as TelemetryReader.
  explicit TelemetryTables(const std::string& database);

  // Tables that an earlier version did not write are left out; expert_loads are only in a run with
  // experts, rank_steps in one with several ranks.
  const std::vector<TelemetryTable>& all() const { return tables_; }
  // UserError with the nearest name if there is none.
  const TelemetryTable& table(const std::string& name) const;
  // Calls `row` for each row, by step; the row is valid during the call.
  void read(const TelemetryTable& table, const std::function<void(TelemetryRow)>& row) const;

 private:
  void add_steps();
  void add_stored(const std::string& name);
  void read_steps(const TelemetryTable& table, const std::function<void(TelemetryRow)>& row) const;
  void read_loads(const std::function<void(TelemetryRow)>& row) const;
  int64_t count(const std::string& query) const;

  TelemetryReader version_check_;
  Database database_;
  std::vector<TelemetryTable> tables_;
};

}  // namespace assay
