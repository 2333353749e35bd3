// What the subcommands of `assay dissect` share.
#pragma once

#include "session/held_out.h"
#include "tools/assay/commands.h"

namespace assay {

struct DissectOptions {
  std::string run;
  HeldOutOptions text;
  bool json = false;
};
// RUN, --tokens, --shards, --device, --json.
void add_dissect_options(CLI::App* subcommand, DissectOptions& options);

void add_dissect_damage(Commands& commands, CLI::App* dissect);
void add_dissect_routing(Commands& commands, CLI::App* dissect);
void add_dissect_used(Commands& commands, CLI::App* dissect);

}  // namespace assay
