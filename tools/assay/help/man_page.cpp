#include "tools/assay/help/man_page.h"

#include <sstream>

#include "tools/assay/help/layout.h"

namespace assay {
namespace {

// Text for roff: a hyphen that is typed is \-, a backslash \e; a line that begins with a dot or a
// quote would be a request.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  if (!result.empty() && (result[0] == '.' || result[0] == '\'')) result = "\\&" + result;
  return result;
}

std::string tagged(const std::string& tag, const std::string& text) {
  return ".TP\n\\fB" + roff(tag) + "\\fR\n" + roff(text.empty() ? "-" : text) + "\n";
}

void add_footer(const std::string& footer, std::string& page) {
  std::istringstream lines(footer);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] != ' ') {
      page += ".PP\n" + roff(line) + "\n";
      continue;
    }
    const ExampleLine parts = example_line(line);
    page += ".PP\n.RS 4\n.nf\n" + roff(parts.command) + "\n.fi\n";
    if (!parts.remark.empty()) page += ".RS 4\n" + roff(parts.remark) + "\n.RE\n";
    page += ".RE\n";
  }
}

void add_command(const CommandDescription& command, std::string& page) {
  page += ".SS \"" + roff(command.name + usage_of(command)) + "\"\n" + roff(command.text) + ".\n";
  for (const OptionDescription& argument : command.arguments) {
    page += tagged(heading_of(argument), explained(argument));
  }
  for (const OptionDescription& option : command.options) {
    if (option.names.back() != "--help") page += tagged(heading_of(option), explained(option));
  }
  add_footer(command.footer, page);
  for (const CommandDescription& sub : command.commands) add_command(sub, page);
}

constexpr const char* kFiles =
    ".SH FILES\n"
    "A run is a folder:\n"
    ".TP\n\\fBconfig.yaml\\fR\nits configuration, with every field\n"
    ".TP\n\\fBcheckpoints/\\fR\nwhere the same command resumes from\n"
    ".TP\n\\fBtelemetry.db\\fR\nmeasurements of each logged step, SQLite; \\fBassay telemetry\\fR "
    "exports them\n"
    ".TP\n\\fBlog.txt\\fR\nwhat the program printed\n"
    ".TP\n\\fBreceipt.json\\fR\nhashes and claims, for \\fBassay receipt verify\\fR\n";

constexpr const char* kExitStatus =
    ".SH \"EXIT STATUS\"\n"
    ".TP\n\\fB0\\fR\ndone\n"
    ".TP\n\\fB1\\fR\nuser error: one line \\fBerror:\\fR and one line \\fBhint:\\fR on stderr\n"
    ".TP\n\\fB2\\fR\na verification failed\n"
    ".TP\n\\fB3\\fR\na guard stopped the run\n"
    ".TP\n\\fB4\\fR\na rank was lost: the same command goes on from the last checkpoint\n"
    ".TP\n\\fB130\\fR\ninterrupted\n";

}  // namespace

std::string man_page(const CommandDescription& program, const std::string& version) {
  std::string page = ".\\\" Printed by `assay man`.\n.TH ASSAY 1 \"\" \"assay " + roff(version) +
                     "\" \"User Commands\"\n"
                     ".SH NAME\nassay \\- pretrain small language models and see what happened\n"
                     ".SH SYNOPSIS\n.B assay\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
                     roff(program.text) + "\n";
  for (const OptionDescription& option : program.options) {
    page += tagged(heading_of(option), explained(option));
  }
  add_footer(program.footer, page);
  page += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.commands) add_command(command, page);
  return page + kExitStatus + kFiles;
}

}  // namespace assay
