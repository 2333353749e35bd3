#include "lab/runs/text_table.h"

#include <algorithm>

#include "base/check.h"

namespace assay {
namespace {

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

}  // namespace

size_t display_width(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void TextTable::add(std::vector<std::string> cells) {
  CHECK(cells.size() == heads_.size(), "%zu cells under %zu heads", cells.size(), heads_.size());
  for (std::string& cell : cells)
    if (cell.empty()) cell.assign(1, '-');
  rows_.push_back(std::move(cells));
}

// Numbers begin with a digit, a sign or the bracket of an interval.
bool TextTable::is_left(size_t column) const {
  return column == 0 || std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) {
           return std::string("+-[0123456789").find(row[column].front()) == std::string::npos;
         });
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < heads_.size(); ++c) {
    widths.push_back(display_width(heads_[c]));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], display_width(row[c]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string space(widths[c] - display_width(cells[c]), ' ');
      if (c > 0) text += "  ";
      text += is_left(c) ? cells[c] + space : space + cells[c];
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line(heads_);
  for (const auto& row : rows_) text += line(row);
  return text;
}

std::string TextTable::markdown() const {
  std::vector<std::string> rule;
  for (size_t c = 0; c < heads_.size(); ++c) rule.push_back(is_left(c) ? "---" : "---:");
  std::string text = markdown_line(heads_) + markdown_line(rule);
  for (const auto& row : rows_) text += markdown_line(row);
  return text;
}

}  // namespace assay
