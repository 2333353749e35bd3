// The fields of a configuration as text: one row per field, from the lists of
// engine/config/config.h.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

struct FieldRow {
  std::string path;   // model.moe.router.score
  std::string type;   // integer, number, true/false, text, list, numbers, section
  std::string value;  // as YAML; absent optional: "absent"; present section: ""
  std::string doc;
  FieldCheck check;
};

// In the order of the lists. A section has a row of its own before its fields; an absent section
// has only that row.
std::vector<FieldRow> config_fields(const Config& config);

// The rows of the default configuration with every optional section present: all known names.
std::vector<FieldRow> all_config_fields();

// nullptr if none has the path.
const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& path);

// The last path component of each text in a YAML value, each followed by a comma. Equal names mean
// the same files in possibly different folders.
std::string file_names(const std::string& value);

// ">= 1", "in (0, 1]", "one of adamw"; "" if every value is allowed.
std::string check_text(const FieldCheck& check);

// As YAML text that reads back equal: shortest digits that round-trip, quotes where needed.
std::string yaml_scalar(bool value);
std::string yaml_scalar(int64_t value);
std::string yaml_scalar(double value);
std::string yaml_scalar(const std::string& value);
template <IsChoice E>
std::string yaml_scalar(E value) {
  return yaml_scalar(std::string(name_of(value)));
}
template <IsChoice E>
std::string yaml_scalar(const std::optional<E>& value) {
  return value ? yaml_scalar(*value) : "absent";
}
std::string yaml_scalar(const BiasRate& value);
std::string yaml_scalar(const std::vector<std::string>& value);
std::string yaml_scalar(const std::optional<double>& value);
std::string yaml_scalar(const std::optional<std::vector<double>>& value);

}  // namespace assay
