// The fields of a configuration as text: one row a field, made by visiting the lists of
// engine/config/config.h.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

struct FieldRow {
  std::string path;  // model.moe.router.score
  std::string type;  // integer, number, true/false, text, list, numbers, section
  std::string
      value;  // as YAML; "absent" for an optional one that is not there; "" for a section that is
  std::string doc;
  FieldCheck check;
};

// In the order of the lists. Sections have a row of their own before their fields; an absent
// section has only that.
std::vector<FieldRow> config_fields(const Config& config);

// The default configuration with every optional section there: all names that exist.
std::vector<FieldRow> all_config_fields();

// The last path component of every quoted or plain text of a YAML value: two configurations with
// the same names read the same files in different places.
std::string file_names(const std::string& value);

// ">= 1", "in (0, 1]", "one of adamw", "" when anything goes.
std::string check_text(const FieldCheck& check);

// As YAML reads it back: shortest digits that round-trip, quotes where needed.
std::string yaml_scalar(bool value);
std::string yaml_scalar(int64_t value);
std::string yaml_scalar(double value);
std::string yaml_scalar(const std::string& value);
std::string yaml_scalar(const std::vector<std::string>& value);
std::string yaml_scalar(const std::optional<double>& value);
std::string yaml_scalar(const std::optional<std::vector<double>>& value);

}  // namespace assay
