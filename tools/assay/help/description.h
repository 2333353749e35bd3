// What the command line accepts, read from CLI11's objects: --help, the completion scripts and the
// man page are all made from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace assay {

// What a shell offers for a value.
enum class ValueKind { kText, kNumber, kChoice, kFile, kFolder, kRun, kConfigField };

struct OptionDescription {
  std::vector<std::string> names;  // -o, --out; an argument has one name: RUN
  std::string text;
  std::string value;                 // FILE, N, {auto,cpu,cuda}; "" for a flag
  std::string limits;                // "> 0", "in [0 - 1024]"; "" = none
  std::vector<std::string> choices;  // auto, cpu, cuda
  ValueKind kind = ValueKind::kText;
  bool required = false, repeated = false;

  bool takes_value() const { return !value.empty(); }
};

struct CommandDescription {
  std::string name;                          // assay data prepare
  std::string text;                          // one line
  std::string footer;                        // examples and remarks, see text_block() in layout.h
  std::vector<OptionDescription> arguments;  // in their order
  std::vector<OptionDescription> options;    // --help is the last
  std::vector<CommandDescription> commands;  // of a group: data, tokenizer, receipt

  std::string word() const { return name.substr(name.rfind(' ') + 1); }
};

// `name` is how a user calls it: "assay", "assay data prepare".
CommandDescription describe(const CLI::App& app, const std::string& name);

// "[OPTIONS] CONFIG..." after the name of the command.
std::string usage_of(const CommandDescription& command);
// "-o, --out DIR"
std::string heading_of(const OptionDescription& option);
// The text with what it requires: "number of steps; N > 0; required".
std::string explained(const OptionDescription& option);

}  // namespace assay
