// Text in a terminal: lines broken between words, two columns, and the footers of --help.
#pragma once

#include <string>

namespace assay {

// The columns for --help: COLUMNS, else the terminal's, else 80; at least 40, at most 100.
int help_columns();

// Breaks the text between words so that no line is longer than `width`; lines after the first begin
// with `indent` spaces. `at` columns of the first line are taken already.
std::string wrapped(const std::string& text, int width, int indent, int at = 0);

// "  left   right", the right part wrapped in its own column, or on the next line if left is long.
std::string two_columns(const std::string& left, const std::string& right, int width,
                        int column = 26);

// A footer of --help for the width. A line is a paragraph, except that one which begins with a
// space is an example or a row of a table: "  command   what it does", with at least two spaces
// between the parts. Consecutive ones are aligned; where they do not fit, the second part goes
// below.
std::string text_block(const std::string& text, int width);

// The parts of such a line: {"command", "what it does"}; the second may be empty.
struct ExampleLine {
  std::string command, remark;
};
ExampleLine example_line(const std::string& line);

}  // namespace assay
