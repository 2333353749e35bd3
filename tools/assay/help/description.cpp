#include "tools/assay/help/description.h"

#include <map>
#include <utility>

#include "base/joined.h"
#include "engine/config/paths.h"

namespace assay {
namespace {

struct NamedValue {
  const char* value;
  ValueKind kind;
};

// What the value of an option or an argument with a text is, by its name; CLI11 knows only TEXT.
const std::map<std::string, NamedValue>& named_values() {
  static const std::map<std::string, NamedValue> values = {
      {"--set", {"FIELD=VALUE", ValueKind::kConfigField}},
      {"--help-config", {"SECTION", ValueKind::kConfigField}},
      {"--run", {"RUN", ValueKind::kRun}},
      {"--config", {"FILE", ValueKind::kFile}},
      {"--like", {"CONFIG", ValueKind::kFile}},
      {"--tokenizer", {"FILE", ValueKind::kFile}},
      {"--file", {"FILE", ValueKind::kFile}},
      {"--prompts", {"FILE", ValueKind::kFile}},
      {"--anchor", {"FILE", ValueKind::kFile}},
      {"--merge", {"FILE", ValueKind::kFile}},
      {"--val", {"PATH", ValueKind::kFile}},
      {"--out", {"PATH", ValueKind::kFile}},
      {"--csv", {"DIR", ValueKind::kFolder}},
      {"--tensorboard", {"DIR", ValueKind::kFolder}},
      {"--bundle", {"DIR", ValueKind::kFolder}},
      {"--export", {"FOLDER", ValueKind::kFolder}},
      {"--shards", {"FILE", ValueKind::kFile}},
      {"--data", {"DIR", ValueKind::kFolder}},
      {"--text", {"TEXT", ValueKind::kText}},
      {"RUN", {"RUN", ValueKind::kRun}},
      {"CONFIG", {"CONFIG", ValueKind::kFile}},
      {"FILE", {"FILE", ValueKind::kFile}},
      {"PATH", {"PATH", ValueKind::kFile}},
      {"SHARD", {"SHARD", ValueKind::kFile}},
      {"MATRIX", {"MATRIX", ValueKind::kFile}},
      {"DIR", {"DIR", ValueKind::kFolder}},
      {"FOLDER", {"FOLDER", ValueKind::kFolder}},
  };
  return values;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// CLI11 writes TYPE:CHECK:..., for example INT:POSITIVE, INT:INT in [0 - 1024], TEXT:{auto,cpu}.
void read_type(const std::string& type, OptionDescription& option) {
  const std::vector<std::string> parts = split(type, ':');
  const bool number = parts[0] == "INT" || parts[0] == "UINT" || parts[0] == "FLOAT";
  option.value = number ? (parts[0] == "FLOAT" ? "X" : "N") : "TEXT";
  option.kind = number ? ValueKind::kNumber : ValueKind::kText;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& check = parts[i];
    if (check.size() > 2 && check.front() == '{' && check.back() == '}') {
      option.choices = split(check.substr(1, check.size() - 2), ',');
      option.value = check;
      option.kind = ValueKind::kChoice;
    } else if (check == "POSITIVE") {
      option.limits = "> 0";
    } else if (check == "NONNEGATIVE") {
      option.limits = ">= 0";
    } else if (const size_t in = check.find("in ["); in != std::string::npos) {
      option.limits = check.substr(in);
    }
  }
}

OptionDescription describe_option(const CLI::Option& given) {
  OptionDescription option;
  option.text = as_installed(given.get_description());
  if (given.get_positional()) {
    option.names = {given.get_name(true)};
  } else {
    for (const std::string& name : given.get_snames()) option.names.push_back("-" + name);
    for (const std::string& name : given.get_lnames()) option.names.push_back("--" + name);
  }
  option.required = given.get_required();
  option.repeated = given.get_expected_max() >= CLI::detail::expected_max_vector_size;
  if (given.get_items_expected_max() == 0) return option;  // a flag
  read_type(given.get_type_name(), option);
  const auto named = named_values().find(option.names.back());
  if (named != named_values().end() && option.kind == ValueKind::kText) {
    option.value = named->second.value;
    option.kind = named->second.kind;
  }
  return option;
}

}  // namespace

CommandDescription describe(const CLI::App& app, const std::string& name) {
  CommandDescription command{.name = name,
                             .text = app.get_description(),
                             .footer = as_installed(app.get_footer()),
                             .arguments = {},
                             .options = {},
                             .commands = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr()) continue;
    (option->get_positional() ? command.arguments : command.options)
        .push_back(describe_option(*option));
  }
  command.options.push_back(describe_option(*app.get_help_ptr()));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    command.commands.push_back(describe(*sub, name + " " + sub->get_name()));
  }
  return command;
}

std::string usage_of(const CommandDescription& command) {
  std::string usage = command.commands.empty() ? " [OPTIONS]" : " COMMAND";
  for (const OptionDescription& argument : command.arguments) {
    const std::string name = argument.names[0] + (argument.repeated ? "..." : "");
    usage += argument.required ? " " + name : " [" + name + "]";
  }
  return usage;
}

std::string heading_of(const OptionDescription& option) {
  const std::string heading = joined(option.names, ", ");
  const bool argument = option.names[0][0] != '-';
  if (argument) return heading + (option.repeated ? "..." : "");
  return heading + (option.takes_value() ? " " + option.value : "");
}

std::string explained(const OptionDescription& option) {
  std::string text = option.text;
  if (!option.limits.empty()) text += " (" + option.value + " " + option.limits + ")";
  const bool argument = option.names[0][0] != '-';
  if (option.required && !argument) text += " (required)";
  return text;
}

}  // namespace assay
