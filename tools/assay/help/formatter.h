// The text of --help, in one style for every command and as wide as the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace assay {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override;
};

}  // namespace assay
