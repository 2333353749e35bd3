// assay dissect: experiments on the experts and routers of a trained mixture.
#include "tools/assay/commands/dissect.h"

#include "base/file.h"
#include "data/json_text.h"
#include "engine/run/own_folder.h"
#include "tools/assay/print_warning.h"

namespace assay {

void warn_not_kept(const UserError& error) {
  print_warning(std::string("not recorded in the run: ") + error.what(), error.hint());
}

void record_dissection(const std::string& run, const std::string& name,
                       const nlohmann::ordered_json& json) {
  try {
    require_own_folder(run + "/dissect");
    make_folders(run + "/dissect");
    write_file_atomic(run + "/" + name, json_text(json, 1) + "\n");
  } catch (const UserError& error) {
    warn_not_kept(error);
  }
}

void add_dissect_options(CLI::App* subcommand, DissectOptions& options) {
  subcommand
      ->add_option("RUN", options.run,
                   "a run with experts (its newest checkpoint is used) or a checkpoint: "
                   "RUN/checkpoints/step-N")
      ->required();
  add_held_out_options(subcommand, options.text, options.json);
}

void add_held_out_options(CLI::App* subcommand, HeldOutOptions& text, bool& json) {
  text.warn = print_warning;
  subcommand
      ->add_option(
          "--tokens", text.tokens,
          "held-out tokens to read, rounded up to whole sequences (default: eval.tokens of "
          "the run)")
      ->check(above_zero());
  subcommand
      ->add_option("--shards", text.files,
                   "read these shards instead of the run's validation data, comma-separated")
      ->delimiter(',')
      ->check(CLI::ExistingFile);
  subcommand->add_option("--device", text.device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  subcommand->add_flag("--json", json, "print one JSON object on stdout");
}

void add_dissect_commands(Commands& commands) {
  CLI::App* dissect = commands.app.add_subcommand(
      "dissect", "experiments on the experts and routers of a trained mixture");
  dissect->require_subcommand(1);
  add_dissect_damage(commands, dissect);
  add_dissect_used(commands, dissect);
  add_dissect_routing(commands, dissect);
  add_dissect_seeds(commands, dissect);
  dissect->footer(
      "Forward passes over held-out text; nothing of the run changes but its folder RUN/dissect.\n"
      "docs/dissect.md explains the tables.");
}

}  // namespace assay
