#include "lab/matrix/edits_text.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/joined.h"
#include "base/shell_word.h"
#include "base/some_names.h"
#include "engine/config/fields.h"

namespace assay {
namespace {

// A difference and the cells that have it.
struct SharedDifference {
  FieldDifference what;
  std::vector<std::string> cells;
};

// In the order of the first cells.
std::vector<SharedDifference> shared_differences(const std::vector<CellDifference>& changes) {
  std::vector<SharedDifference> all;
  for (const CellDifference& change : changes) {
    auto same = std::find_if(all.begin(), all.end(),
                             [&](const SharedDifference& d) { return d.what == change.what; });
    if (same == all.end()) same = all.insert(all.end(), {.what = change.what, .cells = {}});
    same->cells.push_back(change.cell);
  }
  return all;
}

void add_differences(std::vector<std::string>& lines, const std::vector<CellDifference>& changes) {
  for (const SharedDifference& d : shared_differences(changes)) {
    lines.push_back(d.cells.size() == 1
                        ? "    " + d.cells.front() + ": " + d.what.text()
                        : "    " + d.what.text() + strprintf(" (%zu cells: ", d.cells.size()) +
                              some_names(d.cells) + ")");
  }
}

// Moved cells of which it is not known what differs.
std::vector<std::string> moved_without_changes(const MatrixEdits& edits) {
  std::vector<std::string> cells;
  for (const std::string& cell : edits.moved) {
    const bool known =
        std::any_of(edits.moved_changes.begin(), edits.moved_changes.end(),
                    [&](const CellDifference& change) { return change.cell == cell; });
    if (!known) cells.push_back(cell);
  }
  return cells;
}

// "optimizer.lr=0.001" of optimizer.lr, 0.001 before; "" where --set cannot give it back: another
// file of the data, what the matrix sets itself, paths, of which only the name is shown, steps that
// a contract derives.
std::string set_of(const FieldDifference& difference, bool derived_steps) {
  const std::string& field = difference.field;
  for (const char* other : {"data.", "contract.", "precision.recipe", "run.seed"}) {
    if (field.starts_with(other)) return "";
  }
  if (derived_steps && field == "run.steps") return "";
  const std::vector<FieldRow> fields = all_config_fields();
  const FieldRow* const row = find_row(fields, field);
  const bool has_value = !difference.before.empty() && difference.before != "absent";
  const bool can_set = row != nullptr && row->type != "section" && !row->check.path;
  return can_set && has_value ? field + "=" + difference.before : "";
}

// Whether a --set can have made one of the differences. The contract of a run is compared by the
// steps that it gives, and its data by their bytes.
bool explains(const std::string& set, const std::vector<SharedDifference>& differences) {
  return std::any_of(
      differences.begin(), differences.end(), [&](const SharedDifference& difference) {
        const std::string& field = difference.what.field;
        return set_gives(set, field) || (field == "run.steps" && set_gives(set, "contract")) ||
               (field.starts_with("data ") && set_gives(set, "data"));
      });
}

std::string options_of(const std::vector<std::string>& sets) {
  std::string options;
  for (const std::string& set : sets) options += " --set " + shell_word(set);
  return options;
}

}  // namespace

std::string cells_edit_text(const MatrixEdits& edits) {
  std::vector<std::string> changes, parts;
  for (const SharedDifference& d : shared_differences(edits.changed))
    changes.push_back(d.what.text());
  const auto add = [&](size_t cells, const char* what, const std::vector<std::string>& names) {
    if (cells > 0) parts.push_back(strprintf("%zu %s (", cells, what) + some_names(names) + ")");
  };
  const size_t changed = edits.changed_cells.size();
  add(changed, changed == 1 ? "cell changed" : "cells changed", changes);
  add(edits.added.size(), "added", edits.added);
  add(edits.removed.size(), "removed", edits.removed);
  add(edits.moved.size(), "changed before they began", edits.moved);
  return joined(parts, "; ");
}

std::vector<std::string> edit_lines(const MatrixEdits& edits) {
  std::vector<std::string> lines;
  const auto list = [&](const char* what, const std::vector<std::string>& cells) {
    if (cells.empty()) return;
    lines.push_back(strprintf("  %s:", what));
    for (const std::string& cell : cells) lines.push_back("    " + cell);
  };
  list("new", edits.added);
  list("removed: kept on the disk, left out of the tables", edits.removed);
  if (!edits.moved.empty()) {
    lines.emplace_back("  changed before they started:");
    add_differences(lines, edits.moved_changes);
    if (const std::vector<std::string> others = moved_without_changes(edits); !others.empty())
      lines.push_back(
          strprintf("    %zu %s: ", others.size(), others.size() == 1 ? "cell" : "cells") +
          some_names(others));
  }
  if (!edits.changed.empty()) {
    lines.emplace_back("  changed after they started:");
    add_differences(lines, edits.changed);
  } else if (edits.missing_sets && !edits.missing_sets->empty()) {
    lines.push_back("  matrix.json has" + options_of(*edits.missing_sets) + ", not given now");
  }
  return lines;
}

std::vector<std::string> sets_to_give_back(const MatrixEdits& edits) {
  std::vector<std::string> sets;
  std::vector<CellDifference> changes = edits.changed;
  changes.insert(changes.end(), edits.moved_changes.begin(), edits.moved_changes.end());
  const std::vector<SharedDifference> differences = shared_differences(changes);
  if (edits.missing_sets) {
    std::copy_if(edits.missing_sets->begin(), edits.missing_sets->end(), std::back_inserter(sets),
                 [&](const std::string& set) { return explains(set, differences); });
    return sets;
  }
  if (edits.unchanged > 0) return {};  // it would change the runs that are as recorded
  const size_t all =
      edits.changed_cells.size() + edits.moved.size() - moved_without_changes(edits).size();
  for (const SharedDifference& d : differences) {
    if (d.cells.size() < all) continue;
    if (const std::string set = set_of(d.what, edits.derived_steps); !set.empty())
      sets.push_back(set);
  }
  return sets;
}

std::string give_back_text(const MatrixEdits& edits) {
  const std::string options = options_of(sets_to_give_back(edits));
  if (edits.changed.empty() || options.empty()) return "";
  return std::string(edits.missing_sets ? "they were trained with" : "if they were trained with") +
         options + (edits.missing_sets ? ": " : ", ") + "give it again";
}

std::string changed_runs_text(const MatrixEdits& edits) {
  const size_t runs = edits.changed_cells.size();
  std::string text = strprintf("%zu run%s", runs, runs == 1 ? "" : "s");
  if (edits.finished > 0) text += strprintf(" (%ld of them finished)", long(edits.finished));
  return text;
}

}  // namespace assay
