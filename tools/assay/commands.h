// The subcommands of `assay`. Each file tools/assay/commands/<name>.cpp registers its own:
//
//   void add_audit_command(Commands& commands) {
//     auto options = std::make_shared<AuditOptions>();
//     CLI::App* sub = commands.app.add_subcommand("audit", "parameters, FLOPs, memory, horizons");
//     sub->add_option("CONFIG", options->configs, "configuration files")->required();
//     commands.on_chosen(sub, [options] { return audit(*options); });
//   }
//
// and add_all_commands (tools/assay/main.cpp) calls it. The function given to on_chosen() returns
// the exit code or throws UserError.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace assay {

enum ExitCode {
  kExitDone = 0,
  kExitUserError = 1,
  kExitVerificationFailed = 2,
  kExitStoppedByGuard = 3,
  kExitRankLost = 4,
  kExitInterrupted = 130,
};

struct Commands {
  CLI::App app;
  std::function<int()> run;            // runs the chosen subcommand
  std::vector<std::string> arguments;  // the whole command line, for the record of a run

  // Sets `run` when the subcommand is chosen: the whole command line is parsed before it runs.
  void on_chosen(CLI::App* subcommand, std::function<int()> what) {
    subcommand->callback([this, what] { run = what; });
  }
};

// Adds --set SECTION.KEY=VALUE, repeatable. Each --set takes one value, so that CONFIG may follow.
CLI::Option* add_set_option(CLI::App* subcommand, std::vector<std::string>& sets);

// Adds --contract KIND, of comparisons.
CLI::Option* add_contract_option(CLI::App* subcommand, std::string& contract);
// UserError for a kind that there is not; "" is none.
void require_contract_kind(const std::string& contract);

// Used instead of CLI11's own validators, whose messages contain the largest double.
CLI::Validator above_zero();
CLI::Validator zero_or_more();
// > 0 and <= most.
CLI::Validator share_up_to(double most);
// From low to high, both included.
CLI::Validator whole_between(int64_t low, int64_t high);
CLI::Validator number_between(double low, double high);
// For transform(): also reads 1e3 and 2.5e4, as --set does.
CLI::Validator whole_number();

void add_train_command(Commands& commands);
void add_branch_command(Commands& commands);
void add_tune_command(Commands& commands);
void add_audit_command(Commands& commands);
void add_match_command(Commands& commands);
void add_matrix_command(Commands& commands);
void add_doctor_command(Commands& commands);
void add_compare_command(Commands& commands);
void add_map_command(Commands& commands);
void add_published_commands(Commands& commands);
void add_data_commands(Commands& commands);
void add_synth_commands(Commands& commands);  // subcommands of `data`: call after add_data_commands
void add_tokenizer_commands(Commands& commands);
void add_receipt_commands(Commands& commands);
void add_checkpoint_commands(Commands& commands);
void add_watch_command(Commands& commands);
void add_router_command(Commands& commands);
void add_early_warning_command(Commands& commands);
void add_precision_command(Commands& commands);
void add_eval_command(Commands& commands);
void add_dissect_commands(Commands& commands);
void add_report_command(Commands& commands);
void add_telemetry_command(Commands& commands);
void add_sample_command(Commands& commands);
void add_simulate_command(Commands& commands);
void add_export_command(Commands& commands);
void add_import_command(Commands& commands);
void add_about_commands(Commands& commands);  // version, completion, man

// "assay 0.3.0 (commit ..., compiler, flags)"
std::string version_text();

}  // namespace assay
