// Tables of models for the terminal: rows by name, one column per model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace assay {

// With thousands separators: 190,532,352.
std::string grouped(int64_t value);

// Rows are in the order in which they are first set; cells that are not set show a dash.
class ModelTable {
 public:
  explicit ModelTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  void set(const std::string& row, size_t column, std::string value);
  std::string text() const;  // lines of equal length

 private:
  struct Row {
    std::string name;
    std::vector<std::string> cells;
  };
  std::string line(const std::string& name, size_t first,
                   const std::vector<std::string>& cells) const;

  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

}  // namespace assay
