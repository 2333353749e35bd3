// A table for the terminal and as Markdown: columns of numbers are aligned right, the first column
// and all others left.
#pragma once

#include <string>
#include <vector>

namespace assay {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heads) : heads_(std::move(heads)) {}

  // As many cells as heads; "" shows as a dash.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  std::string text() const;  // lines end in \n
  std::string markdown() const;

 private:
  bool is_left(size_t column) const;

  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

// Number of UTF-8 characters.
size_t display_width(const std::string& text);

}  // namespace assay
