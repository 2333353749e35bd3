// The assay command line: parses the arguments, runs the chosen subcommand, and reports failures as
// one line `error:` and one line `hint:`.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/standard_output.h"
#include "base/suggest.h"
#include "engine/config/fields.h"
#include "engine/config/paths.h"
#include "machine/openmp_wait_policy.h"
#include "tools/assay/commands.h"
#include "tools/assay/help/formatter.h"

namespace assay {
namespace {

constexpr const char* kDescription =
    "Assay pretrains small dense and mixture-of-experts language models from scratch, audits their "
    "parameters and shows where tokens go.";

constexpr const char* kFirstSteps =
    "First steps:\n"
    "  bash tools/demo.sh                      train three models and compare them\n"
    "  assay train --example-config > my.yaml  a configuration to edit\n"
    "  assay COMMAND --help                    options of a command, with examples\n"
    "Exit codes: 0 done, 1 user error, 2 a verification failed, 3 stopped by a guard, 4 a rank was "
    "lost, 130 "
    "interrupted.";

void add_all_commands(Commands& commands) {
  add_train_command(commands);
  add_branch_command(commands);
  add_audit_command(commands);
  add_match_command(commands);
  add_matrix_command(commands);
  add_compare_command(commands);
  add_map_command(commands);
  add_published_commands(commands);
  add_data_commands(commands);
  add_synth_commands(commands);
  add_tokenizer_commands(commands);
  add_receipt_commands(commands);
  add_checkpoint_commands(commands);
  add_watch_command(commands);
  add_router_command(commands);
  add_early_warning_command(commands);
  add_precision_command(commands);
  add_eval_command(commands);
  add_dissect_commands(commands);
  add_report_command(commands);
  add_telemetry_command(commands);
  add_sample_command(commands);
  add_simulate_command(commands);
  add_tune_command(commands);
  add_export_command(commands);
  add_import_command(commands);
  add_doctor_command(commands);
  add_about_commands(commands);
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

int print_error(const std::string& message, const std::string& hint) {
  std::fflush(stdout);  // where both go to one file, the error is not inside another line
  std::fprintf(stderr, "error: %s\n", one_line(message).c_str());
  if (!hint.empty()) std::fprintf(stderr, "hint: %s\n", one_line(as_installed(hint)).c_str());
  return kExitUserError;
}

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
std::string field_named(const std::string& name) {
  for (const FieldRow& row : all_config_fields()) {
    const bool named = row.path == name || row.path.ends_with("." + name);
    if (named && row.type != "section") return row.path;
  }
  return "";
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

// Replaces CLI11's messages, which suggest neither the nearest known name nor --help.
int print_parse_error(CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& arguments) {
  std::string called;
  CLI::App* where = innermost(&app, called);
  const std::string help = "`" + called + " --help` shows how to use it";
  std::vector<std::string> unknown = where->remaining();
  if (unknown.empty()) unknown = app.remaining(true);
  if (unknown.empty()) {
    if (!command_names(where).empty() && error.get_name() == "RequiredError") {
      return print_error(called + " needs a command", help);
    }
    return print_error(called + ": " + readable(where, error), help);
  }
  const std::string word = unknown.front();
  const bool is_option = word.size() > 1 && word[0] == '-';
  const bool expects_command = !is_option && !command_names(where).empty();
  return print_error(called + ": unknown " +
                         (is_option         ? "option "
                          : expects_command ? "command "
                                            : "argument ") +
                         word,
                     hint_for_unknown(where, called, word, arguments));
}

// Turns `assay help COMMAND` into `assay COMMAND --help`, as git and cargo do.
std::vector<std::string> help_as_option(std::vector<std::string> words) {
  if (words.size() > 1 && words[1] == "help") {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  return words;
}

int main_checked(int argc, char** argv) {
  Commands commands;
  commands.app.description(kDescription);
  commands.app.name("assay");
  commands.app.require_subcommand(1);
  // Subcommands inherit these two when they are made.
  commands.app.set_help_flag("-h,--help", "print this text");
  commands.app.formatter(std::make_shared<HelpFormatter>());
  add_all_commands(commands);
  commands.app.set_version_flag("-V,--version", version_text(), "print the version");
  commands.app.footer(kFirstSteps);
  try {
    commands.arguments.assign(argv, argv + argc);
    std::vector<std::string> words = help_as_option(commands.arguments);
    std::reverse(words.begin() + 1, words.end());  // CLI11 expects the last argument first
    words.erase(words.begin());
    commands.app.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // --help, --version
    const bool of_a_command = !commands.app.get_subcommands().empty();
    if (!of_a_command && !commands.app.remaining().empty()) {
      return print_parse_error(commands.app, asked, commands.arguments);
    }
    return commands.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return print_parse_error(commands.app, error, commands.arguments);
  }
  return commands.run();
}

// Reports every failure; never throws.
int main_reported(int argc, char** argv) {
  try {
    return main_checked(argc, argv);
  } catch (const UserError& error) {
    return print_error(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    return print_error("out of memory", "use a smaller run.micro_batch");
  } catch (const std::filesystem::filesystem_error& error) {
    return print_error("cannot use " + error.path1().string() + ": " + error.code().message(),
                       "check its permissions (ls -ld) and its disk (df -h)");
  } catch (const std::exception& error) {
    return print_error(error.what(),
                       "this looks like a bug in assay: please report it with the command");
  }
}

// A run reads every shard from the beginning on, and corpora of a thousand are usual: more than the
// files that many systems let a program open at first.
void raise_open_files() {
  constexpr rlim_t kFiles = 65536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kFiles) return;
  limit.rlim_cur = std::min(limit.rlim_max, kFiles);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::hold_standard_descriptors();
  assay::guard_terminals();
  assay::ensure_short_spinning(argv);
  assay::raise_open_files();
  // Without this, a write beyond the file size limit kills the process; with it, write() fails and
  // the error names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  return assay::finish_standard_output(assay::main_reported(argc, argv));
}
