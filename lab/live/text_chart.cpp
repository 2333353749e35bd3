#include "lab/live/text_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "models/audit/model_table.h"

namespace assay {
namespace {

constexpr int kLabelColumns = 7;
constexpr double kSkippedShare = 0.05;
constexpr size_t kFewPoints = 20;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

Range value_range(const std::vector<ChartCurve>& curves) {
  Range range;
  for (const ChartCurve& curve : curves) {
    const size_t size = curve.points.size();
    size_t from = size < kFewPoints ? 0 : size_t(kSkippedShare * double(size));
    for (size_t i = from; i < size; ++i) {
      if (std::isfinite(curve.points[i].value)) range.add(curve.points[i].value);
    }
  }
  if (range.empty()) return range;
  const double least = std::max(1e-3, 1e-3 * std::abs(range.high));  // for a flat curve
  if (range.high - range.low < least) {
    range.low -= least / 2;
    range.high += least / 2;
  }
  return range;
}

// Dots in a grid of characters.
class Plane {
 public:
  Plane(int columns, int rows, ChartDots dots)
      : dots_(dots),
        columns_(columns),
        rows_(rows),
        wide_(dots == ChartDots::kBraille ? 2 : 1),
        high_(dots == ChartDots::kBraille ? 4 : 1),
        bits_(size_t(columns * rows)),
        glyphs_(size_t(columns * rows)) {}

  int dot_columns() const { return columns_ * wide_; }
  int dot_rows() const { return rows_ * high_; }

  void set(int x, int y, const ChartCurve& curve) {
    if (x < 0 || x >= dot_columns() || y < 0 || y >= dot_rows()) return;
    const size_t at = size_t(y / high_ * columns_ + x / wide_);
    glyphs_[at] = {.text = curve.letter, .style = curve.style};
    if (dots_ == ChartDots::kLetters) return;
    static constexpr unsigned kBits[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    bits_[at] |= kBits[y % 4][x % 2];
    const unsigned code = 0x2800 + bits_[at];
    glyphs_[at].text = {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 0x3F)),
                        char(0x80 | (code & 0x3F))};
  }

  void add_row(int row, StyledLine& line) const {
    for (int column = 0; column < columns_; ++column) {
      line.add(glyphs_[size_t(row * columns_ + column)]);
    }
  }

 private:
  ChartDots dots_;
  int columns_, rows_, wide_, high_;
  std::vector<unsigned> bits_;
  std::vector<Glyph> glyphs_;
};

// The mean of the points in each column of dots: the line of a noisy loss.
std::vector<std::optional<double>> column_means(const std::vector<StepValue>& points, int columns,
                                                int64_t first, int64_t last) {
  std::vector<double> sum(size_t(columns), 0), count(size_t(columns), 0);
  for (const StepValue& p : points) {
    if (!std::isfinite(p.value)) continue;
    const double share = last > first ? double(p.step - first) / double(last - first) : 0;
    const auto at = size_t(std::clamp(int(share * columns), 0, columns - 1));
    sum[at] += p.value;
    count[at] += 1;
  }
  std::vector<std::optional<double>> means(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    if (count[i] > 0) means[i] = sum[i] / count[i];
  }
  return means;
}

void draw(const ChartCurve& curve, const Range& range, int64_t first, int64_t last, Plane& plane) {
  const auto means = column_means(curve.points, plane.dot_columns(), first, last);
  const int lowest = plane.dot_rows() - 1;
  std::optional<std::pair<int, int>> before;
  for (int x = 0; x < plane.dot_columns(); ++x) {
    if (!means[size_t(x)]) continue;
    const double share = (*means[size_t(x)] - range.low) / (range.high - range.low);
    const int y = std::clamp(int(std::lround((1 - share) * lowest)), 0, lowest);
    plane.set(x, y, curve);
    if (before) {  // a straight line from the last dot
      const auto [x0, y0] = *before;
      const int steps = std::max(x - x0, std::abs(y - y0));
      for (int i = 1; i < steps; ++i) {
        plane.set(int(std::lround(x0 + double(x - x0) * i / steps)),
                  int(std::lround(y0 + double(y - y0) * i / steps)), curve);
      }
    }
    before = {x, y};
  }
}

StyledLine step_axis(int64_t first, int64_t last, int columns) {
  StyledLine line(std::string(kLabelColumns + 1, ' '));
  line.add(grouped(first), Style::kDim);
  const std::string end = "step " + grouped(last);
  if (int(line.columns() + end.size()) + 1 >= columns) return line;
  line.pad_to(size_t(columns) - end.size());
  line.add(end, Style::kDim);
  return line;
}

}  // namespace

std::string axis_number(double value, double step) {
  const double size = std::abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return strprintf("%.0e", value);
  const int digits = std::clamp(1 + int(std::ceil(-std::log10(std::max(step, 1e-9)))), 0, 4);
  // Halves are rounded up on every machine: the last bit of a position in the chart may differ.
  return strprintf("%.*f", size >= 100 ? 0 : digits, value + 1e-6 * step);
}

std::vector<StyledLine> text_chart(const std::vector<ChartCurve>& curves, const ChartSize& size,
                                   ChartDots dots) {
  const int rows = std::max(1, size.rows - 2), columns = size.columns - kLabelColumns - 1;
  const Range range = value_range(curves);
  std::vector<StyledLine> lines;
  if (range.empty() || columns < 10 || size.rows < 4) {
    lines.emplace_back(range.empty() ? "no loss is logged yet" : "", Style::kDim);
    lines.resize(size_t(std::max(1, size.rows)));
    return lines;
  }
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (const ChartCurve& curve : curves) {
    if (curve.points.empty()) continue;
    first = std::min(first, curve.points.front().step);
    last = std::max(last, curve.points.back().step);
  }
  Plane plane(columns, rows, dots);
  for (const ChartCurve& curve : curves) draw(curve, range, first, last, plane);

  const int every = rows >= 9 ? 3 : 2;  // rows per label
  const double row_value = (range.high - range.low) / std::max(1, rows - 1);
  for (int row = 0; row < rows; ++row) {
    const bool labelled = row % every == 0;
    const std::string label =
        labelled ? axis_number(range.high - row * row_value, every * row_value) : "";
    StyledLine line;
    line.pad_to(size_t(std::max(0, kLabelColumns - 1 - int(label.size()))));
    line.add(label, Style::kDim).pad_to(kLabelColumns - 1);
    const bool braille = dots == ChartDots::kBraille;
    line.add(braille ? (labelled ? " ┤" : " │") : (labelled ? " +" : " |"), Style::kDim);
    plane.add_row(row, line);
    lines.push_back(std::move(line));
  }
  StyledLine axis(std::string(kLabelColumns, ' '));
  axis.add(dots == ChartDots::kBraille ? "└" : "+", Style::kDim);
  for (int i = 0; i < columns; ++i) axis.add(dots == ChartDots::kBraille ? "─" : "-", Style::kDim);
  lines.push_back(std::move(axis));
  lines.push_back(step_axis(first, last, size.columns));
  return lines;
}

}  // namespace assay
