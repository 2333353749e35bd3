#include "lab/runs/markdown_table.h"

#include <algorithm>

namespace assay {

namespace {

// A cell cannot hold the sign between cells or a line's end.
std::string escaped(const std::string& cell) {
  std::string text;
  for (const char c : cell) text += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return text;
}

}  // namespace

std::string markdown_table(MarkdownRows rows, size_t text_columns) {
  for (auto& row : rows) std::transform(row.begin(), row.end(), row.begin(), escaped);
  std::vector<size_t> width(rows.front().size(), 3);
  const auto columns = [](const std::string& text) {  // without the continuation bytes of UTF-8
    return size_t(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  };
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], columns(row[i]));
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "|";
    for (size_t i = 0; i < rows[r].size(); ++i) {
      const std::string pad(width[i] - columns(rows[r][i]), ' ');
      text += " " + (i < text_columns ? rows[r][i] + pad : pad + rows[r][i]) + " |";
    }
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t i = 0; i < width.size(); ++i) {
      text += i < text_columns ? std::string(width[i] + 2, '-') + "|"
                               : std::string(width[i] + 1, '-') + ":|";
    }
    text += "\n";
  }
  return text;
}

}  // namespace assay
