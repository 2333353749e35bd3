#include "lab/telemetry/text_rows.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/json_text.h"

namespace assay {
namespace {

template <typename Number>
void append_number(Number value, std::string& text) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text.append(digits.data(), end);
}

// A JSON string of the text, with valid UTF-8.
std::string json_string(const std::string& text) {
  return json_text(nlohmann::json(text));
}

void append_csv_text(const std::string& given, std::string& text) {
  const std::string valid = json_or_throw(json_string(given)).get<std::string>();
  if (valid.find_first_of(",\"\r\n") == std::string::npos) {
    text += valid;
    return;
  }
  text += '"';
  for (const char c : valid) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  text += '"';
}

}  // namespace

std::string csv_header(const TelemetryTable& table) {
  std::string text;
  for (const TelemetryColumn& column : table.columns) {
    if (!text.empty()) text += ',';
    append_csv_text(column.name, text);
  }
  return text + '\n';
}

void append_csv(TelemetryRow row, std::string& text) {
  for (size_t c = 0; c < row.size(); ++c) {
    if (c > 0) text += ',';
    if (const auto* integer = std::get_if<int64_t>(&row[c])) append_number(*integer, text);
    if (const auto* number = std::get_if<double>(&row[c])) append_number(*number, text);
    if (const auto* words = std::get_if<std::string>(&row[c])) append_csv_text(*words, text);
  }
  text += '\n';
}

void append_json(const TelemetryTable& table, TelemetryRow row, std::string& text) {
  text += "{\"table\":" + json_string(table.name);
  for (size_t c = 0; c < row.size(); ++c) {
    text += ',' + json_string(table.columns[c].name) + ':';
    if (const auto* integer = std::get_if<int64_t>(&row[c])) {
      append_number(*integer, text);
    } else if (const auto* number = std::get_if<double>(&row[c])) {
      const bool finite = std::isfinite(*number);
      if (!finite) text += '"';
      append_number(*number, text);
      if (!finite) text += '"';
    } else if (const auto* words = std::get_if<std::string>(&row[c])) {
      text += json_string(*words);
    } else {
      text += "null";
    }
  }
  text += "}\n";
}

std::string write_csv(const TelemetryTables& tables, const TelemetryTable& table,
                      const std::string& folder) {
  AtomicFile file(folder + "/" + table.name + ".csv");
  std::string text = csv_header(table);
  file.write(text.data(), text.size());
  tables.read(table, [&](TelemetryRow row) {
    text.clear();
    append_csv(row, text);
    file.write(text.data(), text.size());
  });
  file.commit();
  return file.path();
}

}  // namespace assay
