#include "engine/config/text.h"

#include <algorithm>

#include "base/check.h"
#include "data/sha256.h"
#include "engine/config/fields.h"
#include "engine/config/schedule.h"
#include "engine/config/spelling.h"

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

const FieldRow* find_row(const std::vector<FieldRow>& rows, const std::string& path) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const FieldRow& row) { return row.path == path; });
  return found == rows.end() ? nullptr : &*found;
}

// True if the section may appear or disappear on resume: every field in it is free.
bool free_section(const std::string& path) {
  bool free = true;
  for (const FieldRow& row : all_config_fields()) {
    const bool inside = row.path.rfind(path + ".", 0) == 0 && row.type != "section";
    free &= !inside || row.check.on_resume == OnResume::kFree;
  }
  return free;
}

// "" if the learning rates of the first steps_done steps are the same.
std::string schedule_difference(const Config& before, const Config& now, int64_t steps_done) {
  const Schedule old_schedule = make_schedule(before), new_schedule = make_schedule(now);
  for (int64_t step = 0; step < steps_done; ++step) {
    if (old_schedule.share(step) != new_schedule.share(step)) {
      return strprintf(" (step %ld of the %ld done would have had another learning rate)",
                       static_cast<long>(step + 1), static_cast<long>(steps_done));
    }
  }
  return "";
}

// "" if as many of the first steps_done steps are in the recipe: its last ones are in bf16.
std::string tail_difference(const Config& before, const Config& now, int64_t steps_done) {
  if (same_formats(before, now, steps_done)) return "";
  return strprintf(
      " (precision.bf16_tail: of the %ld steps done the first %ld were in the recipe's formats, "
      "and would have been the first %ld)",
      long(steps_done), long(std::min(recipe_steps(before), steps_done)),
      long(std::min(recipe_steps(now), steps_done)));
}

// "run.seed: 1 -> 2".
std::string changed(const FieldRow& from, const FieldRow& to) {
  const auto shown = [](const FieldRow& row) {
    return row.type == "section" && row.value.empty() ? "present" : row.value;
  };
  return from.path + ": " + shown(from) + " -> " + shown(to);
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

std::vector<std::string> result_changing_differences(const Config& before, const Config& now,
                                                     int64_t steps_done) {
  const std::vector<FieldRow> old_rows = config_fields(before), new_rows = config_fields(now);
  std::vector<std::string> differences;
  for (const FieldRow& row : old_rows) {
    const FieldRow* other = find_row(new_rows, row.path);
    if (other == nullptr || other->value == row.value)
      continue;  // absent sections have a row of their own
    if (row.check.on_resume == OnResume::kFree) continue;
    if (means_the_same(row.path, before, now)) continue;
    if (row.type == "section" && free_section(row.path)) continue;
    if (row.check.path && file_names(row.value) == file_names(other->value)) continue;
    std::string why;
    if (row.check.on_resume == OnResume::kSchedule) {
      why = now.run.steps < steps_done
                ? " (" + std::to_string(steps_done) + " steps are done already)"
                : schedule_difference(before, now, steps_done);
      if (why.empty() && row.path == "run.steps") why = tail_difference(before, now, steps_done);
      if (why.empty()) continue;
    }
    differences.push_back(changed(row, *other) + why);
  }
  return differences;
}

std::vector<std::string> differences_of_ranks(const Config& first, const Config& other) {
  const std::vector<FieldRow> theirs = config_fields(other);
  std::vector<std::string> differences;
  for (const FieldRow& row : config_fields(first)) {
    const FieldRow* there = find_row(theirs, row.path);
    if (there == nullptr || there->value == row.value) continue;
    if (row.path == "run.threads" || row.path == "data.cache") continue;
    if (row.check.path && file_names(row.value) == file_names(there->value)) continue;
    differences.push_back(changed(row, *there));
  }
  return differences;
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
