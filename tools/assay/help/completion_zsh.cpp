#include "base/joined.h"
#include "engine/config/fields.h"
#include "tools/assay/help/completion.h"

namespace assay {
namespace {

// Inside single quotes of a shell.
std::string single_quoted(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result;
}

// As the text of a specification of _arguments, where brackets and colons end it.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return single_quoted(result);
}

std::string function_of(const CommandDescription& command) {
  std::string name = "_" + command.name;
  for (char& c : name) c = c == ' ' || c == '-' ? '_' : c;
  return name;
}

std::string action_of(const OptionDescription& option) {
  switch (option.kind) {
    case ValueKind::kFile:
      return "_files";
    case ValueKind::kFolder:
      return "_files -/";
    case ValueKind::kRun:
      return "_assay_runs";
    case ValueKind::kConfigField:
      return "_assay_fields";
    case ValueKind::kChoice:
      return "(" + joined(option.choices, " ") + ")";
    case ValueKind::kNumber:
    case ValueKind::kText:
      return " ";
  }
  return " ";
}

void add_specifications(const OptionDescription& option, std::string& text) {
  for (const std::string& name : option.names) {
    text += " \\\n    '";
    // Where other names exist, one of them excludes the others.
    if (option.repeated) {
      text += "*";
    } else if (option.names.size() > 1) {
      text += "(";
      for (const std::string& other : option.names) text += (text.back() == '(' ? "" : " ") + other;
      text += ")";
    }
    text += name + "[" + plain(option.text) + "]";
    if (option.takes_value()) text += ":" + plain(option.value) + ":" + action_of(option);
    text += "'";
  }
}

// A group: its first word chooses the function for the others.
std::string group_function(const CommandDescription& command) {
  std::string text = function_of(command) + "() {\n  local state\n  local -a commands=(";
  for (const CommandDescription& sub : command.commands) {
    text += "\n    '" + sub.word() + ":" + plain(sub.text) + "'";
  }
  text += "\n  )\n  _arguments -C";
  for (const OptionDescription& option : command.options) add_specifications(option, text);
  text += " \\\n    '1: :->command' '*:: :->rest'\n  case $state in\n";
  text += "    command) _describe command commands ;;\n    rest)\n      case $words[1] in\n";
  for (const CommandDescription& sub : command.commands) {
    text += "        " + sub.word() + ") " + function_of(sub) + " ;;\n";
  }
  return text + "      esac\n      ;;\n  esac\n}\n";
}

std::string function_text(const CommandDescription& command) {
  std::string text;
  for (const CommandDescription& sub : command.commands) text += function_text(sub);
  if (!command.commands.empty()) return text + group_function(command);
  text += function_of(command) + "() {\n  _arguments";
  for (const OptionDescription& option : command.options) add_specifications(option, text);
  for (const OptionDescription& argument : command.arguments) {
    text += std::string(" \\\n    '") + (argument.repeated ? "*" : "") + ":" +
            plain(argument.names[0]) + ":" + action_of(argument) + "'";
  }
  return text + "\n}\n";
}

std::string field_function() {
  std::string text =
      "# Fields of a configuration, then their choices.\n"
      "_assay_fields() {\n  local -a fields=(";
  std::string choices;
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") continue;
    text += "\n    '" + row.path + ":" + plain(row.doc) + "'";
    std::string words;
    for (const std::string& word : row.check.choices) words += " " + word;
    if (row.type == "true/false") words = " true false";
    if (!words.empty()) choices += "      " + row.path + ") compadd --" + words + " ;;\n";
  }
  text += "\n  )\n  if compset -P 1 '*='; then\n    case ${IPREFIX%=} in\n" + choices;
  return text +
         "    esac\n  else\n    _describe -t fields 'configuration field' fields -S =\n  fi\n}\n";
}

constexpr const char* kZshHead =
    "#compdef assay\n"
    "# Completion of assay for zsh; printed by `assay completion zsh`.\n"
    "# Save it as _assay in a folder of $fpath, or try it with: source <(assay completion zsh)\n"
    "# Folders of runs, also those in runs/; other folders where there is none.\n"
    "_assay_runs() {\n"
    "  local -a found=()\n"
    "  local run\n"
    "  for run in ${PREFIX}*(N/) runs/${PREFIX}*(N/); do\n"
    "    if [[ -e $run/config.yaml || -e $run/telemetry.db ]]; then found+=($run); fi\n"
    "  done\n"
    "  if (( $#found )); then compadd -U -f -- $found; else _files -/; fi\n"
    "}\n";

constexpr const char* kTail =
    "if [[ $funcstack[1] == _assay ]]; then\n"
    "  _assay \"$@\"\n"
    "else\n"
    "  compdef _assay assay\n"
    "fi\n";

}  // namespace

std::string zsh_completion(const CommandDescription& program) {
  return kZshHead + field_function() + function_text(program) + kTail;
}

}  // namespace assay
