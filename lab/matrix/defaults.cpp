#include "lab/matrix/defaults.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace assay {

void require_given_precisions(const Matrix& matrix) {
  if (matrix.file.precisions_given) return;
  std::vector<std::string> recipes;
  std::string first, all;
  for (const Cell& cell : matrix.cells) {
    const std::string& recipe = cell.own_recipe;
    if (recipe == "auto" || std::count(recipes.begin(), recipes.end(), recipe) > 0) continue;
    if (recipes.empty()) first = cell.model;
    all += (recipes.empty() ? "" : ", ") + recipe;
    recipes.push_back(recipe);
  }
  if (recipes.empty()) return;
  throw UserError("model " + first + " names precision.recipe " + recipes.front() + ", but " +
                      matrix.file.path + " has no precisions, which trains every model in auto",
                  "precisions: [" + all + "] trains every model in " +
                      (recipes.size() == 1 ? "it" : "each of them") +
                      ", precisions: [auto] every model in bf16 or fp32, as the device does best");
}

std::string replaced_seed(const Matrix& matrix) {
  const MatrixFile& file = matrix.file;
  if (file.seeds_given || !file.extra_seeds.empty()) return "";
  const auto found = std::find_if(matrix.cells.begin(), matrix.cells.end(),
                                  [](const Cell& cell) { return cell.own_seed != cell.seed; });
  if (found == matrix.cells.end()) return "";
  return strprintf(
      "model %s names run.seed %ld, but %s has no seeds, which trains every model with seed %ld; "
      "for its own: seeds: [%ld]",
      found->model.c_str(), long(found->own_seed), file.path.c_str(), long(found->seed),
      long(found->own_seed));
}

}  // namespace assay
