// assay telemetry: a run's telemetry for other programs: tables, CSV, JSON lines, TensorBoard.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "engine/run/run_dir.h"
#include "lab/telemetry/tensorboard.h"
#include "lab/telemetry/text_rows.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string run, table, csv, tensorboard;
  bool tables = false, jsonl = false, json = false, loads = false, overwrite = false;
};

// What is exported: the table that was named, else every table; loads, the largest by far, only
// when asked for.
std::vector<TelemetryTable> chosen_tables(const TelemetryTables& tables, const Arguments& a) {
  if (!a.table.empty()) return {tables.table(a.table)};
  std::vector<TelemetryTable> chosen;
  for (const TelemetryTable& table : tables.all()) {
    if (table.name != "expert_loads" || a.loads) chosen.push_back(table);
  }
  return chosen;
}

bool is_event_file(const std::string& name) {
  return name.rfind(kEventFileStart, 0) == 0 && name.ends_with(kEventFileEnd);
}

// Makes the folder. With --overwrite it deletes an earlier export's event file from it, because
// TensorBoard would show both; other files stay.
void open_folder(const std::string& folder, const Arguments& a) {
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
    throw UserError(folder + " is a file, not a folder", "name a new folder");
  }
  if (fs::is_directory(folder, ignored) && !fs::is_empty(folder, ignored) && !a.overwrite) {
    throw UserError(folder + " exists and is not empty",
                    "name a new folder, or replace an earlier export with --overwrite");
  }
  make_folders(folder);
  if (folder != a.tensorboard) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (is_event_file(entry.path().filename().string())) fs::remove(entry.path());
  }
}

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
int print_rows(const TelemetryTables& tables, const Arguments& a) {
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

int write_folders(const TelemetryTables& tables, const Arguments& a) {
  const std::vector<TelemetryTable> chosen = chosen_tables(tables, a);
  if (!a.csv.empty()) open_folder(a.csv, a);
  if (!a.tensorboard.empty()) open_folder(a.tensorboard, a);
  for (const TelemetryTable& table : chosen) {
    if (a.csv.empty()) continue;
    std::printf("%s: %ld rows\n", write_csv(tables, table, a.csv).c_str(), long(table.rows));
  }
  if (!a.tensorboard.empty()) {
    std::printf("%s\n", write_events(tables, a.tensorboard).c_str());
    std::printf("view it with: tensorboard --logdir %s\n", a.tensorboard.c_str());
  }
  return kExitDone;
}

void check_arguments(const Arguments& a) {
  const bool folders = !a.csv.empty() || !a.tensorboard.empty();
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

int run_telemetry(const Arguments& a) {
  check_arguments(a);
  const TelemetryTables tables((require_run(a.run) / "telemetry.db").string());
  if (!a.csv.empty() || !a.tensorboard.empty()) return write_folders(tables, a);
  if (a.jsonl || (!a.table.empty() && !a.tables)) return print_rows(tables, a);
  return a.json ? list_tables_as_json(tables) : list_tables(tables);
}

}  // namespace

void add_telemetry_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
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
