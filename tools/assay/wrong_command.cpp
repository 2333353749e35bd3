#include "tools/assay/wrong_command.h"

#include <algorithm>

#include "base/suggest.h"
#include "engine/config/fields.h"

namespace assay {
namespace {

// The innermost subcommand the parser reached, and how a user calls it.
CLI::App* innermost(CLI::App* app, std::string& called) {
  called = "assay";
  for (auto parsed = app->get_subcommands(); !parsed.empty(); parsed = app->get_subcommands()) {
    app = parsed.front();
    called += " " + app->get_name();
  }
  return app;
}

std::vector<std::string> option_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App* app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app->get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

// "lr" of "--lr", "lr=3" and "--lr=3".
std::string name_in(const std::string& word) {
  const size_t begin = std::min(word.find_first_not_of('-'), word.size());
  return word.substr(begin, word.find('=') - begin);
}

// The path of the field that a word names, by its path or its last name; "" if none is called so.
// Of several with that last name one of `run`, else the one in the fewest sections.
std::string field_named(const std::string& name) {
  std::string best;
  const auto depth = [](const std::string& path) {
    return path.starts_with("run.") ? 0 : std::count(path.begin(), path.end(), '.');
  };
  for (const FieldRow& row : all_config_fields()) {
    if (row.type == "section") continue;
    if (row.path == name) return row.path;
    if (!row.path.ends_with("." + name)) continue;
    if (best.empty() || depth(row.path) < depth(best)) best = row.path;
  }
  return best;
}

// How a word is given that a command with --set does not know: "--set optimizer.lr=3" for "lr=3",
// "--lr 3", "--lr=3" and the 3 of "--set optimizer.lr 3". "" if it is no such word.
std::string as_set(const std::string& word, const std::vector<std::string>& arguments) {
  const auto at = std::find(arguments.begin(), arguments.end(), word);
  const auto next = at == arguments.end() ? at : at + 1;
  if (const std::string field = field_named(name_in(word)); !field.empty()) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos) return "--set " + field + word.substr(equals);
    const bool has_value = next != arguments.end() && !next->starts_with("--");
    return "--set " + field + "=" + (has_value ? *next : "VALUE");
  }
  const bool after_set = at - arguments.begin() >= 2 && at != arguments.end() && at[-2] == "--set";
  if (!after_set || at[-1].find('=') != std::string::npos) return "";
  const std::string field = field_named(at[-1]);
  return field.empty() ? "" : "--set " + field + "=" + word;
}

// What an option takes that could not read its value, by CLI11's name of the type.
std::string wanted_by(const CLI::App* app, const std::string& option) {
  const CLI::Option* const found = app->get_option_no_throw(option);
  const std::string type = found == nullptr ? "" : found->get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "a whole number";
  return type.starts_with("FLOAT") ? "a number" : "";
}

// "Could not convert: --val-share = 0.5%" as "--val-share: 0.5% is not a number"; another message
// as it is.
std::string readable(const CLI::App* app, const CLI::ParseError& error) {
  const std::string what = error.what(), start = "Could not convert: ";
  const size_t equals = what.find(" = ");
  if (!what.starts_with(start) || equals == std::string::npos) return what;
  const std::string option = what.substr(start.size(), equals - start.size());
  const std::string wanted = wanted_by(app, option);
  return wanted.empty() ? what : option + ": " + what.substr(equals + 3) + " is not " + wanted;
}

// The hint for a word that the command does not know.
std::string hint_for_unknown(const CLI::App* app, const std::string& called,
                             const std::string& word, const std::vector<std::string>& arguments) {
  const std::string help = "`" + called + " --help` shows how to use it";
  const bool is_option = word.size() > 1 && word[0] == '-';
  const std::vector<std::string> options = option_names(app);
  if (std::count(options.begin(), options.end(), "--set") > 0) {
    const std::string set = as_set(word, arguments);
    if (!set.empty()) return "a field of the configuration: " + set;
  }
  const std::string typed = word.substr(0, word.find('='));
  const bool takes_config = app->get_option_no_throw("CONFIG") != nullptr;
  if (typed == "--config" && takes_config) {
    return "the configuration needs no option: " + called + " FILE";
  }
  const std::string near = nearest_name(typed, is_option ? options : command_names(app));
  return near.empty() ? help : "did you mean " + near + "? " + help;
}

}  // namespace

UserError wrong_command(CLI::App& app, const CLI::ParseError& error,
                        const std::vector<std::string>& arguments) {
  std::string called;
  CLI::App* where = innermost(&app, called);
  const std::string help = "`" + called + " --help` shows how to use it";
  std::vector<std::string> unknown = where->remaining();
  if (unknown.empty()) unknown = app.remaining(true);
  if (unknown.empty()) {
    if (!command_names(where).empty() && error.get_name() == "RequiredError") {
      return UserError(called + " needs a command", help);
    }
    return UserError(called + ": " + readable(where, error), help);
  }
  const std::string word = unknown.front();
  const bool is_option = word.size() > 1 && word[0] == '-';
  const bool expects_command = !is_option && !command_names(where).empty();
  return UserError(called + ": unknown " +
                       (is_option         ? "option "
                        : expects_command ? "command "
                                          : "argument ") +
                       word,
                   hint_for_unknown(where, called, word, arguments));
}

}  // namespace assay
