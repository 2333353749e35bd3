#include "lab/matrix/selection.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/suggest.h"

namespace assay {
namespace {

struct Selection {
  std::set<std::string> models, precisions;  // empty: all
};

Selection read_selection(const MatrixFile& file, const std::vector<std::string>& only) {
  std::vector<std::string> models;
  for (const MatrixModel& model : file.models) models.push_back(model.name);
  std::vector<std::string> known = models;
  known.insert(known.end(), file.precisions.begin(), file.precisions.end());
  const auto add = [](std::set<std::string>& chosen, const std::vector<std::string>& names,
                      const std::string& word) {
    bool found = false;
    for (const std::string& name : names) {
      if (name != word && fnmatch(word.c_str(), name.c_str(), 0) != 0) continue;
      chosen.insert(name);
      found = true;
    }
    return found;
  };
  Selection selection;
  for (const std::string& word : only) {
    const auto& all = file.precisions;
    const bool is_precision = std::count(all.begin(), all.end(), word) > 0;
    if (!is_precision && add(selection.models, models, word)) continue;
    if (add(selection.precisions, file.precisions, word)) continue;
    const std::string near = nearest_name(word, known);
    throw UserError("--only " + word + " is not a model or precision of " + file.path,
                    near.empty() ? "name some of them, e.g. --only " + known.front()
                                 : "did you mean " + near + "?");
  }
  return selection;
}

}  // namespace

std::vector<const Cell*> selected_cells(const Matrix& matrix,
                                        const std::vector<std::string>& only) {
  const Selection selection = read_selection(matrix.file, only);
  const auto has = [](const std::set<std::string>& chosen, const std::string& name) {
    return chosen.empty() || chosen.contains(name);
  };
  std::vector<const Cell*> cells;
  for (const Cell& cell : matrix.cells) {
    if (has(selection.models, cell.model) && has(selection.precisions, cell.precision))
      cells.push_back(&cell);
  }
  return cells;
}

bool leaves_out(const MatrixFile& file, const std::vector<std::string>& only,
                const std::string& model) {
  const Selection selection = read_selection(file, only);
  return !selection.models.empty() && !selection.models.contains(model);
}

}  // namespace assay
