// The screen of `assay watch --text`: one run with its routers layer by layer, or several runs as a
// table, with the curves of their losses.
#pragma once

#include <vector>

#include "lab/live/run_view.h"
#include "lab/live/text_chart.h"

namespace assay {

struct FrameSize {
  int columns = 80, rows = 24;
};

enum class Glyphs { kUtf8, kAscii };
enum class Colours { kYes, kNo };

// At most size.rows lines of at most size.columns columns.
std::vector<StyledLine> text_frame(const std::vector<RunView>& runs, FrameSize size, Glyphs glyphs,
                                   Colours colours);

}  // namespace assay
