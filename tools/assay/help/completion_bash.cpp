#include <functional>
#include <set>

#include "base/joined.h"
#include "engine/config/fields.h"
#include "tools/assay/help/completion.h"

namespace assay {
namespace {

// "data prepare" of "assay data prepare"; "" of "assay".
std::string path_of(const CommandDescription& command) {
  const size_t space = command.name.find(' ');
  return space == std::string::npos ? "" : command.name.substr(space + 1);
}

void for_all(const CommandDescription& command,
             const std::function<void(const CommandDescription&)>& visit) {
  visit(command);
  for (const CommandDescription& sub : command.commands) for_all(sub, visit);
}

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kFile:
      return "file";
    case ValueKind::kFolder:
      return "folder";
    case ValueKind::kRun:
      return "run";
    case ValueKind::kConfigField:
      return "field";
    case ValueKind::kNumber:
    case ValueKind::kText:
      return "none";
    case ValueKind::kChoice:
      return "words";
  }
  return "none";
}

std::string kind_of(const OptionDescription& option) {
  return option.kind == ValueKind::kChoice ? "words " + joined(option.choices, " ")
                                           : kind_name(option.kind);
}

// A bash function that prints a line for its first argument.
class Table {
 public:
  explicit Table(const std::string& name) : text_(name + "() {\n  case \"$1\" in\n") {}
  void add(const std::string& key, const std::string& line) {
    text_ += "    \"" + key + "\") echo \"" + line + "\" ;;\n";
  }
  std::string text() const { return text_ + "  esac\n}\n"; }

 private:
  std::string text_;
};

std::string tables(const CommandDescription& program) {
  Table commands("_assay_commands"), options("_assay_options"), values("_assay_value_of");
  Table arguments("_assay_argument_of"), fields("_assay_choices_of");
  for_all(program, [&](const CommandDescription& command) {
    std::vector<std::string> words, names;
    for (const CommandDescription& sub : command.commands) words.push_back(sub.word());
    if (!words.empty()) commands.add(path_of(command), joined(words, " "));
    for (const OptionDescription& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (!option.takes_value()) continue;
      for (const std::string& name : option.names) {
        values.add(path_of(command) + " " + name, kind_of(option));
      }
    }
    options.add(path_of(command), joined(names, " "));
    if (!command.arguments.empty()) {
      arguments.add(path_of(command), kind_of(command.arguments.front()));
    }
  });
  std::vector<std::string> names;
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") continue;
    names.push_back(row.path + "=");
    if (row.type == "true/false") fields.add(row.path, "true false");
    if (!row.check.choices.empty()) fields.add(row.path, joined(row.check.choices, " "));
  }
  return commands.text() + options.text() + values.text() + arguments.text() + fields.text() +
         "_assay_fields() {\n  echo \"" + joined(names, " ") + "\"\n}\n";
}

constexpr const char* kBashHead =
    "# Completion of assay for bash; printed by `assay completion bash`.\n"
    "# Try it with: source <(assay completion bash)\n";

constexpr const char* kFunctions = R"bash(
# Folders of runs under what is typed, also under runs/; other folders where there is none.
_assay_runs() {
  local folder found=1
  for folder in "$1"*/ runs/"$1"*/; do
    if [ -e "${folder}config.yaml" ] || [ -e "${folder}telemetry.db" ]; then
      printf '%s\n' "${folder%/}"
      found=0
    fi
  done
  return $found
}

# The value $2 being typed, of kind $1 (and the words of a choice after it), into COMPREPLY.
_assay_complete() {
  local kind=${1%% *} typed=$2 words=${1#* }
  case "$kind" in
    words) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$typed") ;;
    file) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$typed") ;;
    folder) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$typed") ;;
    run)
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(_assay_runs "$typed" || compgen -d -- "$typed")
      ;;
    field)
      compopt -o nospace 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -W "$(_assay_fields)" -- "$typed")
      ;;
  esac
}

_assay() {
  local typed=${COMP_WORDS[COMP_CWORD]} at=$COMP_CWORD command="" field="" option kind i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " $(_assay_commands "$command") " in
      *" ${COMP_WORDS[i]} "*) command="${command:+$command }${COMP_WORDS[i]}" ;;
    esac
  done
  # Bash splits words at "=": --set FIELD = VALUE, --option = VALUE.
  if [ "$typed" = "=" ]; then
    typed=""
    at=$((at + 1))
  fi
  option=${COMP_WORDS[at - 1]}
  if [ "$option" = "=" ] || { [ $at -gt $COMP_CWORD ] && option="="; }; then
    field=${COMP_WORDS[at - 2]}
    option=$field
    case "$field" in
      -*) field="" ;;
      *) option=${COMP_WORDS[at - 3]} ;;
    esac
  fi
  kind=$(_assay_value_of "$command $option")
  if [ -n "$field" ]; then
    if [ "$kind" = field ]; then
      mapfile -t COMPREPLY < <(compgen -W "$(_assay_choices_of "$field")" -- "$typed")
    fi
  elif [ -n "$kind" ]; then
    _assay_complete "$kind" "$typed"
  elif [ "${typed:0:1}" = "-" ]; then
    _assay_complete "words $(_assay_options "$command")" "$typed"
  elif [ -n "$(_assay_commands "$command")" ]; then
    _assay_complete "words $(_assay_commands "$command")" "$typed"
  else
    _assay_complete "$(_assay_argument_of "$command")" "$typed"
  fi
}

complete -F _assay assay
)bash";

}  // namespace

std::string bash_completion(const CommandDescription& program) {
  return kBashHead + tables(program) + kFunctions;
}

}  // namespace assay
