// Commands that are promised but not part of this version: they check their run, then say so.
#include <memory>

#include "base/check.h"
#include "engine/run_dir.h"
#include "tools/commands.h"

namespace assay {
namespace {

void add_announced(Commands& commands, const std::string& name, const std::string& description,
                   const std::string& instead) {
  auto run = std::make_shared<std::string>();
  CLI::App* sub = commands.app.add_subcommand(name, description + " (not in this version)");
  sub->add_option("RUN", *run, "directory of a run")->required();
  sub->allow_extras();
  commands.on_chosen(sub, [=]() -> int {
    require_run(*run);
    throw UserError("assay " + name + " is not available in this version", instead);
  });
}

}  // namespace

void add_sample_command(Commands& commands) {
  add_announced(commands, "sample", "text from a checkpoint",
                "the weights are in RUN/checkpoints/step-*/model.safetensors");
}

}  // namespace assay
