#include "engine/config/differences.h"

#include <algorithm>

#include "base/check.h"
#include "engine/config/fields.h"
#include "engine/config/schedule.h"
#include "engine/config/spelling.h"

namespace assay {
namespace {

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
      return strprintf("step %ld of the %ld done would have had another learning rate",
                       static_cast<long>(step + 1), static_cast<long>(steps_done));
    }
  }
  return "";
}

// "" if as many of the first steps_done steps are in the recipe: its last ones are in bf16.
std::string tail_difference(const Config& before, const Config& now, int64_t steps_done) {
  if (same_formats(before, now, steps_done)) return "";
  return strprintf(
      "precision.bf16_tail: of the %ld steps done the first %ld were in the recipe's formats, "
      "and would have been the first %ld",
      long(steps_done), long(std::min(recipe_steps(before), steps_done)),
      long(std::min(recipe_steps(now), steps_done)));
}

FieldDifference changed(const FieldRow& from, const FieldRow& to) {
  const auto shown = [](const FieldRow& row) {
    return row.type == "section" && row.value.empty() ? "present" : row.value;
  };
  return {.field = from.path, .before = shown(from), .now = shown(to)};
}

}  // namespace

std::string FieldDifference::text() const {
  return field + ": " + before + " -> " + now + (why.empty() ? "" : " (" + why + ")");
}

std::vector<FieldDifference> result_changing_differences(const Config& before, const Config& now,
                                                         int64_t steps_done) {
  const std::vector<FieldRow> old_rows = config_fields(before), new_rows = config_fields(now);
  std::vector<FieldDifference> differences;
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
      why = now.run.steps < steps_done ? std::to_string(steps_done) + " steps are done already"
                                       : schedule_difference(before, now, steps_done);
      if (why.empty() && row.path == "run.steps") why = tail_difference(before, now, steps_done);
      if (why.empty()) continue;
    }
    differences.push_back(changed(row, *other));
    differences.back().why = why;
  }
  return differences;
}

std::vector<FieldDifference> changed_settings(const Config& before, const Config& now) {
  const std::vector<FieldRow> new_rows = config_fields(now);
  std::vector<FieldDifference> differences;
  for (const FieldRow& row : config_fields(before)) {
    const FieldRow* other = find_row(new_rows, row.path);
    if (other == nullptr || other->value == row.value) continue;
    if (means_the_same(row.path, before, now)) continue;
    if (row.check.path && file_names(row.value) == file_names(other->value)) continue;
    differences.push_back(changed(row, *other));
  }
  return differences;
}

std::vector<FieldDifference> differences_of_ranks(const Config& first, const Config& other) {
  const std::vector<FieldRow> theirs = config_fields(other);
  std::vector<FieldDifference> differences;
  for (const FieldRow& row : config_fields(first)) {
    const FieldRow* there = find_row(theirs, row.path);
    if (there == nullptr || there->value == row.value) continue;
    if (row.path == "run.threads" || row.path == "data.cache") continue;
    if (row.check.path && file_names(row.value) == file_names(there->value)) continue;
    differences.push_back(changed(row, *there));
  }
  return differences;
}

}  // namespace assay
