#include "engine/config/text.h"

#include <algorithm>

#include "base/check.h"
#include "data/sha256.h"
#include "engine/config/fields.h"

namespace assay {
namespace {

size_t depth_of(const std::string& path) {
  return static_cast<size_t>(std::count(path.begin(), path.end(), '.'));
}

std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::string yaml_of(const std::vector<FieldRow>& rows) {
  std::string text;
  for (const FieldRow& row : rows) {
    if (row.value == "absent") continue;
    text += std::string(2 * depth_of(row.path), ' ') + leaf_of(row.path) + ":";
    text += (row.value.empty() ? "" : " " + row.value) + "\n";
  }
  return text;
}

}  // namespace

std::string to_yaml(const Config& config) {
  return yaml_of(config_fields(config));
}

std::string help_config() {
  std::string text =
      "Fields of a configuration, as `section: {field: value}` in YAML or `--set "
      "section.field=value`.\n"
      "`include: other.yaml` reads another file first. Paths are relative to the file that names "
      "them.\n";
  Config defaults;
  const std::vector<FieldRow> present = config_fields(defaults);
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") {
      const FieldRow* here = find_row(present, row.path);
      const bool optional = here != nullptr && here->value == "absent";
      text += strprintf("\n%s%s: %s\n", row.path.c_str(), optional ? " (optional)" : "",
                        row.doc.c_str());
      continue;
    }
    const std::string check = check_text(row.check);
    const std::string type = row.check.path ? (row.type == "list" ? "paths" : "path") : row.type;
    text += strprintf("  %-20s %-10s default %-12s %s%s\n", leaf_of(row.path).c_str(), type.c_str(),
                      row.value.c_str(), row.doc.c_str(),
                      check.empty() ? "" : (" [" + check + "]").c_str());
  }
  return text;
}

std::vector<std::string> differences_from_default(const Config& config) {
  const std::vector<FieldRow> defaults = all_config_fields(), present = config_fields(Config{});
  std::vector<std::string> lines;
  // A section that is there beside the defaults: told by the fields in which it differs, or alone.
  std::string added;
  const auto tell_added = [&] {
    const bool told = !lines.empty() && lines.back().starts_with(added + ".");
    if (!added.empty() && !told) lines.push_back(added + " = present (default absent)");
    added.clear();
  };
  for (const FieldRow& row : config_fields(config)) {
    if (!row.path.starts_with(added + ".")) tell_added();
    if (row.value == "absent") continue;
    if (row.type == "section") {
      const FieldRow* usual = find_row(present, row.path);
      if (usual != nullptr && usual->value == "absent") added = row.path;
      continue;
    }
    const FieldRow* usual = find_row(defaults, row.path);
    CHECK(usual != nullptr, "no default for %s", row.path.c_str());
    if (usual->value != row.value) {
      lines.push_back(row.path + " = " + row.value + " (default " + usual->value + ")");
    }
  }
  tell_added();
  return lines;
}

std::map<std::string, std::string> section_hashes(const Config& config) {
  std::map<std::string, std::vector<FieldRow>> sections;
  for (const FieldRow& row : config_fields(config)) {
    sections[row.path.substr(0, row.path.find('.'))].push_back(row);
  }
  std::map<std::string, std::string> hashes;
  for (const auto& [name, rows] : sections) hashes[name] = sha256_hex(yaml_of(rows));
  return hashes;
}

}  // namespace assay
