// A terminal screen that is redrawn in place, by plain ANSI escape codes on stdout.
#pragma once

#include <string>
#include <vector>

#include "lab/live/text_frame.h"

namespace assay {

// The terminal's second screen, so that what was on the first one comes back.
class Screen {
 public:
  Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  void enter();
  void leave();
  void draw(const std::vector<StyledLine>& lines, Colours colours);
};

bool is_terminal();         // stdout, and it knows escape codes
FrameSize terminal_size();  // 80 x 24 if unknown
Glyphs locale_glyphs();     // of LC_ALL, LC_CTYPE, LANG
Colours wanted_colours();   // no-color.org

void print_frame(const std::vector<StyledLine>& lines, Colours colours);

}  // namespace assay
