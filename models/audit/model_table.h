// Tables of models for the terminal: rows by name, one column a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace assay {

// 190,532,352
std::string grouped(int64_t value);

// Rows in the order they are first met; a model without a row has a dash there.
class ModelTable {
 public:
  explicit ModelTable(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  void set(const std::string& row, size_t column, std::string value);
  std::string text() const;  // every line is as long as the first

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
