#include "lab/receipt/telemetry_dump.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/sqlite.h"

namespace assay {
namespace {

constexpr const char* kTables[] = {"scalar", "span", "router_layer", "expert_load", "eval"};

enum class Source { kComputed, kMeasured };

// A column as the database declares it: a later program may measure more.
struct Column {
  std::string name, type;
};

struct Layout {
  std::vector<Column> columns;
  std::string names, keys;  // for SELECT and ORDER BY
};

Layout layout_of(const Database& database, const std::string& table) {
  Layout layout;
  Statement s(database,
              "SELECT name, type, pk FROM pragma_table_info('" + table + "') ORDER BY cid");
  while (s.step()) {
    const Column column{.name = s.text(0), .type = s.text(1)};
    const std::string name = quoted_name(column.name);
    layout.names += (layout.columns.empty() ? "" : ", ") + name;
    if (s.integer(2) > 0) layout.keys += (layout.keys.empty() ? "" : ", ") + name;
    layout.columns.push_back(column);
  }
  return layout;
}

// Distinguishes measurements of a clock or the system from computed values.
Source source_of(const std::string& scalar) {
  const bool measured = scalar.ends_with("_s") || scalar.ends_with("_ms") ||
                        scalar.ends_with("_joules") || scalar == "mfu_share" ||
                        scalar == "peak_rss_bytes" || scalar == "sent_bytes";
  return measured ? Source::kMeasured : Source::kComputed;
}

void append_number(std::string& line, double value) {
  char text[40];
  line.append(text, static_cast<size_t>(std::snprintf(text, sizeof text, "%.17g", value)));
}

std::string quoted(const std::string& text) {
  return json_text(nlohmann::json(text));
}

void append_load(std::string& line, const std::vector<uint32_t>& counts) {
  for (size_t e = 0; e < counts.size(); ++e) {
    if (e > 0) line += ' ';
    line += std::to_string(counts[e]);
  }
}

class Dump {
 public:
  Dump(const std::string& database, int64_t step) : telemetry_(database), step_(step) {}

  TelemetryDump run() {
    TelemetryDump dump{.step = step_, .tables = {}, .sha256 = {}, .results_sha256 = {}};
    for (const char* name : kTables) dump.tables.push_back(table(name));
    dump.sha256 = all_.hex();
    dump.results_sha256 = results_.hex();
    return dump;
  }

 private:
  TelemetryDump::Table table(const std::string& name) {
    const Layout layout = layout_of(telemetry_.database(), name);
    const Source of_table = name == "span" ? Source::kMeasured : Source::kComputed;
    Sha256 hash;
    const auto put = [&](const std::string& line, Source source) {
      hash.update(line.data(), line.size());
      all_.update(line.data(), line.size());
      if (source == Source::kComputed) results_.update(line.data(), line.size());
    };
    std::string line = name;
    for (const Column& column : layout.columns) line += "\t" + column.name;
    put(line + "\n", of_table);
    Statement s(telemetry_.database(), "SELECT " + layout.names + " FROM " + name +
                                           " WHERE step <= ? ORDER BY " + layout.keys);
    s.bind(0, step_);
    int64_t rows = 0;
    for (; s.step(); ++rows) {
      line.clear();
      for (size_t c = 0; c < layout.columns.size(); ++c) {
        if (c > 0) line += '\t';
        append(line, s, static_cast<int>(c), layout.columns[c].type);
      }
      line += '\n';
      put(line, name == "scalar" ? source_of(s.text(1)) : of_table);
    }
    return {.name = name, .rows = rows, .sha256 = hash.hex()};
  }

  void append(std::string& line, const Statement& s, int column, const std::string& type) const {
    if (s.is_null(column)) {
      line += "null";
    } else if (type == "INTEGER") {
      line += std::to_string(s.integer(column));
    } else if (type == "REAL") {
      append_number(line, s.number(column));
    } else if (type == "BLOB") {
      append_load(line, telemetry_.unpacked_load(s.blob(column), s.integer(0), s.integer(1)));
    } else {
      line += quoted(s.text(column));
    }
  }

  const TelemetryReader telemetry_;
  const int64_t step_;
  Sha256 all_, results_;
};

}  // namespace

TelemetryDump dump_telemetry(const std::string& database, int64_t step) {
  return Dump(database, step).run();
}

}  // namespace assay
