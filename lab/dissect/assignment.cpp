#include "lab/dissect/assignment.h"

#include <limits>

#include "base/check.h"

namespace assay {

namespace {

constexpr double kFar = std::numeric_limits<double>::infinity();

// Minimises the sum of costs, cost = -similarity, over rows <= columns. Rows join one at a time.
// Potentials keep every reduced cost, cost - row_potential - column_potential, at 0 or above, and
// at 0 for the pairs of the assignment.
class Assignment {
 public:
  Assignment(int64_t rows, int64_t columns, std::span<const float> similarity)
      : columns_(size_t(columns)),
        similarity_(similarity),
        row_potential_(size_t(rows), 0),
        column_potential_(columns_, 0),
        distance_(columns_),
        column_of_(size_t(rows), -1),
        row_of_(columns_, -1),
        from_(columns_),
        open_(columns_) {}

  std::vector<int32_t> solve() {
    for (size_t row = 0; row < column_of_.size(); ++row) {
      const size_t end = shortest_path(row);
      update_potentials(row, end);
      augment(row, end);
    }
    return column_of_;
  }

 private:
  // Dijkstra from a row to the nearest column without one; a column that has a row leads to that
  // row at no further cost. Leaves reached_, distance_, from_, and the columns left behind in
  // open_[open_count_, ...). Returns the column.
  size_t shortest_path(size_t start) {
    for (size_t c = 0; c < columns_; ++c) open_[c] = int32_t(c);
    distance_.assign(columns_, kFar);
    open_count_ = columns_;
    reached_ = 0;
    size_t row = start;
    while (true) {
      const size_t at = nearest(row);
      const auto column = size_t(open_[at]);
      reached_ = distance_[column];
      std::swap(open_[at], open_[--open_count_]);
      if (row_of_[column] < 0) return column;
      row = size_t(row_of_[column]);
    }
  }

  // Takes the paths through `row` into distance_. Returns the index in open_ of the nearest column;
  // of equally near ones one without a row, which ends the path.
  size_t nearest(size_t row) {
    const float* const similarity = similarity_.data() + row * columns_;
    const double offset = reached_ - row_potential_[row];
    size_t best = 0;
    double least = kFar;
    for (size_t i = 0; i < open_count_; ++i) {
      const auto column = size_t(open_[i]);
      const double through = offset - double(similarity[column]) - column_potential_[column];
      if (through < distance_[column]) {
        distance_[column] = through;
        from_[column] = int32_t(row);
      }
      const double d = distance_[column];
      if (d < least || (d == least && row_of_[column] < 0)) {
        least = d;
        best = i;
      }
    }
    return best;
  }

  void update_potentials(size_t start, size_t end) {
    row_potential_[start] += reached_;
    for (size_t i = open_count_; i < columns_; ++i) {
      const auto column = size_t(open_[i]);
      if (column == end) continue;
      const double change = reached_ - distance_[column];
      column_potential_[column] -= change;
      row_potential_[size_t(row_of_[column])] += change;
    }
  }

  // Along the path every row takes the column that led on from it.
  void augment(size_t start, size_t end) {
    auto column = int32_t(end);
    while (true) {
      const auto row = size_t(from_[size_t(column)]);
      row_of_[size_t(column)] = int32_t(row);
      std::swap(column_of_[row], column);
      if (row == start) return;
    }
  }

  const size_t columns_;
  const std::span<const float> similarity_;
  std::vector<double> row_potential_, column_potential_;
  std::vector<double> distance_;    // of a column, from the row that joins
  std::vector<int32_t> column_of_;  // -1: none yet
  std::vector<int32_t> row_of_;     // -1: none yet
  std::vector<int32_t> from_;       // the row before a column on its shortest path
  std::vector<int32_t> open_;       // columns; the first open_count_ are not reached yet
  size_t open_count_ = 0;
  double reached_ = 0;  // length of the path to the column reached last
};

}  // namespace

std::vector<int32_t> best_assignment(int64_t rows, int64_t columns,
                                     std::span<const float> similarity) {
  CHECK(int64_t(similarity.size()) == rows * columns, "%zu similarities for (%ld, %ld)",
        similarity.size(), long(rows), long(columns));
  if (rows <= columns) return Assignment(rows, columns, similarity).solve();
  std::vector<float> turned(similarity.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      turned[size_t(c * rows + r)] = similarity[size_t(r * columns + c)];
    }
  }
  std::vector<int32_t> column_of(size_t(rows), -1);
  const std::vector<int32_t> row_of = Assignment(columns, rows, turned).solve();
  for (size_t c = 0; c < row_of.size(); ++c) column_of[size_t(row_of[c])] = int32_t(c);
  return column_of;
}

}  // namespace assay
