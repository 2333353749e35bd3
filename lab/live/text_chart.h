// Curves drawn with characters: Braille patterns (2 x 4 dots per character), or one letter per
// curve where the terminal has neither UTF-8 nor colours.
#pragma once

#include <string>
#include <vector>

#include "engine/telemetry/reader.h"
#include "lab/live/styled_text.h"

namespace assay {

struct ChartCurve {
  std::vector<StepValue> points;  // by step; NaN is left out
  Style style = Style::kPlain;
  std::string letter = "*";  // for ChartDots::kLetters
};

enum class ChartDots { kBraille, kLetters };

struct ChartSize {
  int columns = 80, rows = 12;  // with the axes: two rows below the curves
};

// The range of values leaves out the first twentieth of each curve's points, of fewer than 20 none:
// the fall from the first loss would take nearly all of the height. Points outside of the range lie
// on its edge. Exactly `rows` lines; a sentence if nothing is to be drawn.
std::vector<StyledLine> text_chart(const std::vector<ChartCurve>& curves, const ChartSize& size,
                                   ChartDots dots);

// With as many digits as labels `step` apart need; at most six columns.
std::string axis_number(double value, double step);

}  // namespace assay
