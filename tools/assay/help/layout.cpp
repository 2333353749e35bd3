#include "tools/assay/help/layout.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace assay {
namespace {

constexpr int kUsualColumns = 80, kLeast = 40, kMost = 100;

int length(const std::string& text) {
  return static_cast<int>(text.size());
}

std::string spaces(int count) {
  return std::string(static_cast<size_t>(std::max(0, count)), ' ');
}

// Words of a command; a word in quotes may hold spaces.
std::vector<std::string> shell_words(const std::string& command) {
  std::vector<std::string> words(1);
  char quote = 0;
  for (const char c : command) {
    if (quote == 0 && c == ' ') {
      if (!words.back().empty()) words.emplace_back();
      continue;
    }
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    }
    words.back() += c;
  }
  return words;
}

bool is_command(const std::string& text) {
  for (const char* program : {"assay ", "bash ", "python3 "}) {
    if (text.rfind(program, 0) == 0) return true;
  }
  return false;
}

// A command over several lines, as a shell reads it.
std::string broken_command(const std::string& command, int width) {
  std::string text = "  ";
  int at = 2;
  for (const std::string& word : shell_words(command)) {
    if (at > 2 && at + 1 + length(word) + 2 > width) {
      text += " \\\n      ";
      at = 6;
    } else if (at > 2) {
      text += ' ';
      ++at;
    }
    text += word;
    at += length(word);
  }
  return text + "\n";
}

// Where the remarks of these lines can begin so that all fit; 0 if nowhere.
int remark_column(const std::vector<std::string>& lines, int width) {
  int commands = 0, remarks = 0;
  for (const std::string& line : lines) {
    const ExampleLine parts = example_line(line);
    commands = std::max(commands, parts.remark.empty() ? 0 : length(parts.command));
    remarks = std::max(remarks, length(parts.remark));
    if (length(parts.command) + 2 > width) return 0;
  }
  const int column = 2 + commands + 2;
  return column + remarks <= width ? column : 0;
}

std::string example_text(const std::string& line, int width, int column) {
  const ExampleLine parts = example_line(line);
  if (column > 0) return two_columns(parts.command, parts.remark, width, column);
  if (!is_command(parts.command)) {
    if (!parts.remark.empty()) return two_columns(parts.command, parts.remark, width);
    const int lead = 2 + static_cast<int>(parts.command.find_first_not_of(' '));
    return spaces(lead) + wrapped(parts.command, width, lead + 4, lead) + "\n";
  }
  std::string text = length(parts.command) + 2 <= width ? "  " + parts.command + "\n"
                                                        : broken_command(parts.command, width);
  if (!parts.remark.empty()) text += spaces(6) + wrapped(parts.remark, width, 6, 6) + "\n";
  return text;
}

// Consecutive lines of examples, or rows of a table.
std::string examples_text(const std::vector<std::string>& lines, int width) {
  const int column = remark_column(lines, width);
  std::string text;
  for (const std::string& line : lines) text += example_text(line, width, column);
  return text;
}

}  // namespace

int help_columns() {
  int columns = 0;
  if (const char* given = std::getenv("COLUMNS")) columns = std::atoi(given);
  winsize window{};
  if (columns <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) columns = window.ws_col;
  return columns <= 0 ? kUsualColumns : std::clamp(columns, kLeast, kMost);
}

std::string wrapped(const std::string& text, int width, int indent, int at) {
  std::istringstream words(text);
  std::string word, result;
  bool line_has_words = false;
  while (words >> word) {
    if (line_has_words && at + 1 + length(word) > width) {
      result += "\n" + spaces(indent);
      at = indent;
      line_has_words = false;
    }
    if (line_has_words) {
      result += ' ';
      ++at;
    }
    result += word;
    at += length(word);
    line_has_words = true;
  }
  return result;
}

std::string two_columns(const std::string& left, const std::string& right, int width, int column) {
  std::string text = "  " + left;
  if (right.empty()) return text + "\n";
  if (length(text) + 2 > column) {
    text += "\n" + spaces(column);
  } else {
    text += spaces(column - length(text));
  }
  return text + wrapped(right, width, column, column) + "\n";
}

ExampleLine example_line(const std::string& line) {
  const size_t start = line.find_first_not_of(' ');
  if (start == std::string::npos) return {};
  const size_t margin = std::min<size_t>(start, 2), gap = line.find("  ", start);
  if (gap == std::string::npos) return {.command = line.substr(margin), .remark = ""};
  const size_t remark = line.find_first_not_of(' ', gap);
  return {.command = line.substr(margin, gap - margin),
          .remark = remark == std::string::npos ? "" : line.substr(remark)};
}

std::string text_block(const std::string& text, int width) {
  std::istringstream lines(text);
  std::vector<std::string> examples;
  std::string line, result;
  while (std::getline(lines, line)) {
    if (!line.empty() && line[0] == ' ') {
      examples.push_back(line);
      continue;
    }
    result += examples_text(examples, width) + wrapped(line, width, 0) + "\n";
    examples.clear();
  }
  return result + examples_text(examples, width);
}

}  // namespace assay
