#include "lab/telemetry/tables.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "base/suggest.h"
#include "engine/telemetry/expert_load_codec.h"
#include "lab/telemetry/columns.h"

namespace assay {
namespace {

using Type = TelemetryColumn::Type;

// The database's rows of the table steps: scalars, and spans as NAME_ms.
constexpr const char* kStepRows =
    "SELECT step, name, value FROM scalar UNION ALL "
    "SELECT step, name || '_ms', milliseconds FROM span ORDER BY step";

TelemetryCell cell_of(const Statement& s, int at, Type type) {
  if (s.is_null(at)) return std::monostate();
  if (type == Type::kInteger) return s.integer(at);
  if (type == Type::kNumber) return s.number(at);
  return s.text(at);
}

std::set<std::string> columns_of(const Database& database, const std::string& table) {
  std::set<std::string> names;
  Statement s(database, "SELECT name FROM pragma_table_info('" + table + "')");
  while (s.step()) names.insert(s.text(0));
  return names;
}

}  // namespace

TelemetryTables::TelemetryTables(const std::string& database)
    : version_check_(database), database_(database, Database::Mode::kReadOnly) {
  database_.run("BEGIN");  // the snapshot begins at the first read
  add_steps();
  for (const char* name : stored_table_names()) add_stored(name);
}

int64_t TelemetryTables::count(const std::string& query) const {
  Statement s(database_, query);
  return s.step() ? s.integer(0) : 0;
}

void TelemetryTables::add_steps() {
  TelemetryTable table{.name = "steps",
                       .text = "one row per logged step, one column per measure",
                       .columns = {step_column("step")}};
  // The recorder's order, which is that of the columns' descriptions, is not in the database:
  // names are sorted, loss first.
  Statement names(database_,
                  "SELECT name FROM (SELECT DISTINCT name FROM scalar UNION SELECT DISTINCT "
                  "name || '_ms' FROM span) ORDER BY name <> 'train_loss_nats', name LIKE '%/%', "
                  "name");
  while (names.step()) table.columns.push_back(step_column(names.text(0)));
  table.rows = count("SELECT count(*) FROM (SELECT step FROM scalar UNION SELECT step FROM span)");
  tables_.push_back(std::move(table));
}

void TelemetryTables::add_stored(const std::string& name) {
  TelemetryTable table = stored_table(name);
  const std::string source = database_table(name);
  const std::set<std::string> there = columns_of(database_, source);
  if (there.empty()) return;  // an earlier version
  // count(*) of a whole table would be a single operation of SQLite, which nothing can end.
  table.rows = count("SELECT sum(1) FROM " + source);
  const bool optional = name == "expert_loads" || name == "rank_steps";
  if (optional && table.rows == 0) return;
  if (name == "expert_loads") {
    Statement first(database_, "SELECT counts FROM expert_load LIMIT 1");
    std::vector<uint32_t> counts;  // all loads of a run have the same length
    if (first.step() && unpack_load(first.blob(0), counts)) table.rows *= int64_t(counts.size());
  } else {
    std::erase_if(table.columns,
                  [&](const TelemetryColumn& column) { return !there.contains(column.name); });
  }
  tables_.push_back(std::move(table));
}

const TelemetryTable& TelemetryTables::table(const std::string& name) const {
  std::vector<std::string> names;
  for (const TelemetryTable& table : tables_) {
    if (table.name == name) return table;
    names.push_back(table.name);
  }
  const std::string near = nearest_name(name, names);
  throw UserError(
      "the run has no table " + name,
      (near.empty() ? "" : "did you mean " + near + "? ") + "it has " + joined(names, ", "));
}

void TelemetryTables::read(const TelemetryTable& table,
                           const std::function<void(TelemetryRow)>& row) const {
  if (table.name == "steps") return read_steps(table, row);
  if (table.name == "expert_loads") return read_loads(row);
  std::string names;
  for (const TelemetryColumn& c : table.columns) names += (names.empty() ? "" : ", ") + c.name;
  const std::string order = table.name == "events" ? "rowid" : "1, 2, 3";
  Statement s(database_, "SELECT " + names + " FROM " + database_table(table.name) + " ORDER BY " +
                             (table.name == "meta" ? "1" : order));
  std::vector<TelemetryCell> cells(table.columns.size());
  while (s.step()) {
    for (size_t c = 0; c < cells.size(); ++c) {
      cells[c] = cell_of(s, static_cast<int>(c), table.columns[c].type);
    }
    row(cells);
  }
}

void TelemetryTables::read_steps(const TelemetryTable& table,
                                 const std::function<void(TelemetryRow)>& row) const {
  std::map<std::string, size_t> column_of;
  for (size_t c = 1; c < table.columns.size(); ++c) column_of[table.columns[c].name] = c;
  std::vector<TelemetryCell> cells(table.columns.size());
  Statement s(database_, kStepRows);
  bool any = false;
  while (s.step()) {
    const int64_t step = s.integer(0);
    if (any && std::get<int64_t>(cells[0]) != step) {
      row(cells);
      std::fill(cells.begin(), cells.end(), std::monostate());
    }
    any = true;
    cells[0] = step;
    const auto column = column_of.find(s.text(1));
    if (column != column_of.end()) cells[column->second] = cell_of(s, 2, Type::kNumber);
  }
  if (any) row(cells);
}

void TelemetryTables::read_loads(const std::function<void(TelemetryRow)>& row) const {
  std::vector<uint32_t> counts;
  std::vector<TelemetryCell> cells(4);
  Statement s(database_, "SELECT step, layer, counts FROM expert_load ORDER BY step, layer");
  while (s.step()) {
    cells[0] = s.integer(0);
    cells[1] = s.integer(1);
    if (!unpack_load(s.blob(2), counts)) {
      throw UserError(strprintf("%s: the loads of step %ld, layer %ld cannot be unpacked",
                                database_.path().c_str(), long(s.integer(0)), long(s.integer(1))),
                      "the file is damaged; leave out the table expert_loads");
    }
    for (size_t e = 0; e < counts.size(); ++e) {
      cells[2] = static_cast<int64_t>(e);
      cells[3] = static_cast<int64_t>(counts[e]);
      row(cells);
    }
  }
}

}  // namespace assay
