// assay telemetry: a run's telemetry for other programs: tables, CSV, JSON lines, TensorBoard.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "base/new_folder.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"
#include "lab/telemetry/columns.h"
#include "lab/telemetry/tensorboard.h"
#include "lab/telemetry/text_rows.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLoadsTable = "expert_loads";

struct TelemetryArguments {
  std::string run, table, csv, tensorboard;
  bool tables = false, jsonl = false, json = false, loads = false, overwrite = false;
};

// What is exported: the table that was named, else every table; loads, the largest by far, only
// when asked for.
std::vector<TelemetryTable> chosen_tables(const TelemetryTables& tables,
                                          const TelemetryArguments& a) {
  if (!a.table.empty()) return {tables.table(a.table)};
  std::vector<TelemetryTable> chosen;
  for (const TelemetryTable& table : tables.all()) {
    if (table.name != kLoadsTable || a.loads) chosen.push_back(table);
  }
  return chosen;
}

bool is_event_file(const std::string& name) {
  return name.rfind(kEventFileStart, 0) == 0 && name.ends_with(kEventFileEnd);
}

// False if there is no such file. UserError if it stays.
bool remove_from(const std::string& folder, const std::string& name) {
  std::error_code error;
  const bool removed = fs::remove(fs::path(folder) / name, error);
  if (!error) return removed;
  throw UserError("cannot remove " + folder + "/" + name + ": " + error.message(),
                  "check the permissions of " + folder + ", or name a new folder");
}

// Deletes an earlier export's event file, because TensorBoard would show both; other files stay.
void remove_other_event_files(const std::string& folder, const std::string& written) {
  for (const std::string& name : names_in(folder)) {
    if (is_event_file(name) && name != written) remove_from(folder, name);
  }
}

// Deletes an earlier export's tables that this one did not write; other files stay. Returns a line
// for each.
std::string remove_other_tables(const std::string& folder,
                                const std::vector<TelemetryTable>& written) {
  std::string said;
  for (const char* table : stored_table_names()) {
    if (std::any_of(written.begin(), written.end(),
                    [&](const TelemetryTable& w) { return w.name == table; })) {
      continue;
    }
    const std::string name = std::string(table) + ".csv";
    if (remove_from(folder, name)) {
      said += "removed: " + folder + "/" + name + ", of an earlier export\n";
    }
  }
  return said;
}

// Where the files of an export are written: a new folder, which appears when all is there, or one
// that is there.
class ExportFolder {
 public:
  ExportFolder(std::string path, bool overwrite) : path_(std::move(path)) {
    std::error_code ignored;
    if (fs::exists(path_, ignored) && !fs::is_directory(path_, ignored)) {
      throw UserError(path_ + " is a file, not a folder", "name a new folder");
    }
    const std::vector<std::string> there = names_in(path_);
    if (there.empty() && !fs::equivalent(path_, ".", ignored)) {
      new_.emplace(path_);
      return;
    }
    if (!there.empty() && !overwrite) {
      throw UserError(path_ + " exists and is not empty",
                      "name a new folder, or replace an earlier export with --overwrite");
    }
  }

  const std::string& place() const { return new_ ? new_->part() : path_; }
  // The name that a file in place() has after commit().
  std::string named(const std::string& file) const {
    return path_ + "/" + fs::path(file).filename().string();
  }
  void commit() {
    if (new_) new_->commit();
  }
  // After commit(): a new folder goes again.
  void take_back() const {
    std::error_code ignored;
    if (new_) fs::remove_all(path_, ignored);
  }

 private:
  std::string path_;
  std::optional<NewFolder> new_;
};

const char* type_name(TelemetryColumn::Type type) {
  switch (type) {
    case TelemetryColumn::Type::kInteger:
      return "integer";
    case TelemetryColumn::Type::kNumber:
      return "number";
    case TelemetryColumn::Type::kText:
      return "text";
  }
  return "";
}

int list_tables(const TelemetryTables& tables) {
  for (const TelemetryTable& table : tables.all()) {
    std::printf("%s%s: %ld rows; %s\n", &table == &tables.all().front() ? "" : "\n",
                table.name.c_str(), long(table.rows), table.text.c_str());
    for (const TelemetryColumn& column : table.columns) {
      std::printf("  %-26s %-15s %s\n", column.name.c_str(), column.unit.c_str(),
                  column.text.c_str());
    }
  }
  return kExitDone;
}

int list_tables_as_json(const TelemetryTables& tables) {
  nlohmann::ordered_json json;
  for (const TelemetryTable& table : tables.all()) {
    nlohmann::ordered_json& one = json["tables"][table.name];
    one = {{"text", table.text}, {"rows", table.rows}};
    for (const TelemetryColumn& column : table.columns) {
      one["columns"].push_back({{"name", column.name},
                                {"type", type_name(column.type)},
                                {"unit", column.unit},
                                {"text", column.text}});
    }
  }
  print_json(json);
  return kExitDone;
}

// On standard output: JSON lines of the chosen tables, or CSV of one.
int print_rows(const TelemetryTables& tables, const TelemetryArguments& a) {
  std::string text;
  for (const TelemetryTable& table : chosen_tables(tables, a)) {
    if (!a.jsonl) std::fputs(csv_header(table).c_str(), stdout);
    tables.read(table, [&](TelemetryRow row) {
      text.clear();
      if (a.jsonl) {
        append_json(table, row, text);
      } else {
        append_csv(row, text);
      }
      std::fwrite(text.data(), 1, text.size(), stdout);
    });
  }
  return kExitDone;
}

int write_folders(const TelemetryTables& tables, const TelemetryArguments& a) {
  const std::vector<TelemetryTable> chosen = chosen_tables(tables, a);
  for (const std::string& folder : {a.csv, a.tensorboard}) {  // of a command that was killed
    if (!folder.empty() && !names_in(folder).empty()) remove_left_lock(folder);
  }
  // The CSV appears first. With what a killed command has left of the other folder, which is not
  // there yet, the CSV is of that command too.
  std::error_code ignored;
  const bool left = !a.tensorboard.empty() && names_in(a.tensorboard).empty() &&
                    fs::exists(NewFolder::part_of(a.tensorboard), ignored);
  std::optional<ExportFolder> csv, events;
  if (!a.csv.empty()) csv.emplace(a.csv, a.overwrite || left);
  if (!a.tensorboard.empty()) events.emplace(a.tensorboard, a.overwrite);
  std::string said;
  if (csv) {
    for (const TelemetryTable& table : chosen) {
      const std::string file = write_csv(tables, table, csv->place());
      said += strprintf("%s: %ld rows\n", csv->named(file).c_str(), long(table.rows));
    }
    for (const TelemetryTable& table : tables.all()) {
      if (table.name != kLoadsTable || a.loads || !a.table.empty() || table.rows == 0) continue;
      said += strprintf("left out: %s, %ld rows (--expert-loads adds it)\n", kLoadsTable,
                        long(table.rows));
    }
  }
  std::string event_file;
  if (events) {
    event_file = write_events(tables, events->place());
    said += events->named(event_file) + "\n";
    said += "view it with: tensorboard --logdir " + a.tensorboard + "\n";
  }
  if (csv) csv->commit();
  try {
    if (events) events->commit();
  } catch (const UserError&) {
    if (csv) csv->take_back();  // else the same command could not be given again
    throw;
  }
  // An earlier export goes when the new one is complete.
  if (csv && a.overwrite && a.table.empty()) said += remove_other_tables(a.csv, chosen);
  if (events) remove_other_event_files(a.tensorboard, fs::path(event_file).filename().string());
  std::fputs(said.c_str(), stdout);
  return kExitDone;
}

void check_arguments(const TelemetryArguments& a) {
  const char* const beside_tables = !a.table.empty()         ? "--table"
                                    : a.jsonl                ? "--jsonl"
                                    : !a.csv.empty()         ? "--csv"
                                    : !a.tensorboard.empty() ? "--tensorboard"
                                                             : nullptr;
  if (a.tables && beside_tables != nullptr) {
    throw UserError(std::string("--tables is given with ") + beside_tables,
                    "--tables lists the tables: give it alone, or with --json");
  }
  if (a.overwrite && a.csv.empty() && a.tensorboard.empty()) {
    throw UserError("--overwrite is given without --csv or --tensorboard",
                    "only these write files");
  }
  const bool folders = !a.csv.empty() || !a.tensorboard.empty();
  const bool rows = a.jsonl || !a.table.empty();
  if (a.json && (folders || rows)) {
    const char* const given = !a.csv.empty()           ? "--csv"
                              : !a.tensorboard.empty() ? "--tensorboard"
                              : a.jsonl                ? "--jsonl"
                                                       : "--table";
    throw UserError(std::string("--json is given with ") + given,
                    "--json lists the tables: give it alone; their rows as JSON: --jsonl" +
                        (a.table.empty() ? "" : " --table " + a.table));
  }
  if (a.jsonl && folders) {
    throw UserError("--jsonl is given with a folder",
                    "--jsonl prints on standard output: give it alone, and redirect it");
  }
  if (!a.tensorboard.empty() && a.tensorboard == a.csv) {
    throw UserError("--csv and --tensorboard name the same folder", "give each one its own");
  }
  if (!a.table.empty() && !a.tensorboard.empty()) {
    throw UserError("--table is given with --tensorboard",
                    "an event file holds every curve: leave --table out");
  }
}

int run_telemetry(const TelemetryArguments& a) {
  check_arguments(a);
  const TelemetryTables tables(telemetry_file(require_run(a.run)));
  if (!a.csv.empty() || !a.tensorboard.empty()) return write_folders(tables, a);
  if (a.jsonl || (!a.table.empty() && !a.tables)) return print_rows(tables, a);
  return a.json ? list_tables_as_json(tables) : list_tables(tables);
}

}  // namespace

void add_telemetry_command(Commands& commands) {
  auto a = std::make_shared<TelemetryArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "telemetry", "export a run's measurements: CSV, JSON lines, TensorBoard");
  sub->add_option("RUN", a->run, "directory of a run, finished or still training")->required();
  sub->add_flag("--tables", a->tables,
                "list the tables with their rows, columns and units (the default)");
  sub->add_option("--csv", a->csv, "write one file per table, TABLE.csv, into this new folder");
  sub->add_option("--table", a->table,
                  "only this table; without --csv and --jsonl as CSV on standard output");
  sub->add_flag("--jsonl", a->jsonl, "print one JSON object per row on standard output");
  sub->add_option("--tensorboard", a->tensorboard,
                  "write an event file for TensorBoard into this new folder");
  sub->add_flag("--expert-loads", a->loads,
                "also the table expert_loads, which has a row per expert: it is large");
  sub->add_flag("--overwrite", a->overwrite, "replace an earlier export in the folder");
  sub->add_flag("--json", a->json, "list the tables as one JSON object");
  sub->footer(
      "Examples:\n"
      "  assay telemetry runs/moe                                   the tables, columns, units\n"
      "  assay telemetry runs/moe --csv moe-csv                     steps.csv, evaluations.csv, "
      "...\n"
      "  assay telemetry runs/moe --table evaluations               CSV on standard output\n"
      "  assay telemetry runs/moe --tensorboard tb/moe              then: tensorboard --logdir tb\n"
      "Nothing in the run is changed. docs/telemetry.md has the tables, and pandas.");
  commands.on_chosen(sub, [a] { return run_telemetry(*a); });
}

}  // namespace assay
