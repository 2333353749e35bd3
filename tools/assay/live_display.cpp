#include "tools/assay/live_display.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/standard_output.h"

namespace assay {
namespace {

size_t terminal_columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

LiveLines::LiveLines() : terminal_(can_move_cursor(STDERR_FILENO)) {}

LiveLines::~LiveLines() {
  clear();
  fflush(stderr);
}

void LiveLines::print(const std::string& line) {
  clear();
  fprintf(stderr, "%s\n", line.c_str());
  draw();
  fflush(stderr);
}

void LiveLines::show(const std::vector<std::string>& lines) {
  if (!terminal_) return;
  clear();
  const size_t columns = terminal_columns();
  lines_ = lines;
  for (std::string& line : lines_) line.resize(std::min(line.size(), columns - 1));
  draw();
  fflush(stderr);
}

// Expects the cursor below the block.
void LiveLines::clear() {
  if (!terminal_ || lines_.empty()) return;
  control_terminal(stderr, strprintf("\033[%zuA\033[J", lines_.size()));
}

void LiveLines::draw() {
  if (!terminal_) return;
  for (const std::string& line : lines_) fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace assay
