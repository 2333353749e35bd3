#include "tools/assay/screen.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

#include "base/standard_output.h"

namespace assay {
namespace {

void put(const std::string& text) {
  control_terminal(stdout, text);
}

StyledLine::Escapes escapes_of(Colours colours) {
  return colours == Colours::kYes ? StyledLine::Escapes::kStyles : StyledLine::Escapes::kNone;
}

}  // namespace

Screen::Screen() {
  enter();
}

Screen::~Screen() {
  leave();
}

void Screen::enter() {
  put("\033[?1049h\033[?25l\033[2J");
}

void Screen::leave() {
  put("\033[?25h\033[?1049l");
}

void Screen::draw(const std::vector<StyledLine>& lines, Colours colours) {
  std::string text = "\033[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    text += lines[i].text(escapes_of(colours)) + "\033[K";
  }
  put(text + "\033[J");
}

bool is_terminal() {
  return can_move_cursor(STDOUT_FILENO);
}

FrameSize terminal_size() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.columns = size.ws_col, .rows = size.ws_row};
}

Glyphs locale_glyphs() {
  const locale_t locale = newlocale(LC_CTYPE_MASK, "", locale_t{});
  if (locale == locale_t{}) return Glyphs::kAscii;
  const bool utf8 = std::string_view(nl_langinfo_l(CODESET, locale)) == "UTF-8";
  freelocale(locale);
  return utf8 ? Glyphs::kUtf8 : Glyphs::kAscii;
}

Colours wanted_colours() {
  const char* no_color = getenv("NO_COLOR");
  const bool refused = no_color != nullptr && *no_color != '\0';
  return is_terminal() && !refused ? Colours::kYes : Colours::kNo;
}

void print_frame(const std::vector<StyledLine>& lines, Colours colours) {
  std::string text;
  for (const StyledLine& line : lines) text += line.text(escapes_of(colours)) + "\n";
  if (is_terminal()) return put(text);
  std::fputs(text.c_str(), stdout);
}

}  // namespace assay
