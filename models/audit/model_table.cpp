#include "models/audit/model_table.h"

#include <algorithm>
#include <cstdlib>

namespace assay {

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(std::abs(value));
  std::string text = value < 0 ? "-" : "";
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

void ModelTable::set(const std::string& row, size_t column, std::string value) {
  auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == row; });
  if (found == rows_.end())
    found = rows_.insert(rows_.end(),
                         Row{.name = row, .cells = std::vector<std::string>(columns_.size(), "-")});
  found->cells[column] = std::move(value);
}

std::string ModelTable::text() const {
  size_t first = 0;
  for (const Row& row : rows_) first = std::max(first, row.name.size());
  std::string text = line("", first, columns_);
  for (const Row& row : rows_) text += line(row.name, first, row.cells);
  return text;
}

std::string ModelTable::line(const std::string& name, size_t first,
                             const std::vector<std::string>& cells) const {
  std::string text = name + std::string(first - name.size(), ' ');
  for (size_t c = 0; c < cells.size(); ++c) {
    size_t width = columns_[c].size();
    for (const Row& row : rows_) width = std::max(width, row.cells[c].size());
    text += "  " + std::string(width - cells[c].size(), ' ') + cells[c];
  }
  return text + "\n";
}

}  // namespace assay
