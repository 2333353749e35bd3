// The assay command line: parses the arguments, runs the chosen subcommand, and reports failures as
// one line `error:` and one line `hint:`.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/instruction_sets.h"
#include "base/standard_output.h"
#include "engine/config/paths.h"
#include "machine/openmp_wait_policy.h"
#include "tools/assay/commands.h"
#include "tools/assay/help/formatter.h"
#include "tools/assay/wrong_command.h"

namespace assay {
namespace {

constexpr const char* kDescription =
    "Assay pretrains small dense and mixture-of-experts language models from scratch, audits their "
    "parameters and shows where tokens go.";

constexpr const char* kFirstSteps =
    "First steps:\n"
    "  assay train models/presets/router/e4096-tiny.yaml  see a router collapse\n"
    "  assay train --example-config > my.yaml             a configuration to edit\n"
    "  assay COMMAND --help                               options, with examples\n"
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
      throw wrong_command(commands.app, asked, commands.arguments);
    }
    return commands.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    throw wrong_command(commands.app, error, commands.arguments);
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
  assay::require_instruction_sets();
  assay::hold_standard_descriptors();
  assay::guard_terminals();
  assay::ensure_short_spinning(argv);
  assay::raise_open_files();
  // Without this, a write beyond the file size limit kills the process; with it, write() fails and
  // the error names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  return assay::finish_standard_output(assay::main_reported(argc, argv));
}
