// What the subcommands of `assay dissect` share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "session/held_out.h"
#include "tools/assay/commands.h"

namespace assay {

struct DissectOptions {
  std::string run;
  HeldOutOptions text;
  bool json = false;
};
// RUN, and the options below.
void add_dissect_options(CLI::App* subcommand, DissectOptions& options);
// --tokens, --shards, --device, --json.
void add_held_out_options(CLI::App* subcommand, HeldOutOptions& text, bool& json);

// Writes the file `name` of the run (kUsedFile, kDamageFile). If that is not possible it warns:
// what was measured is printed all the same.
void record_dissection(const std::string& run, const std::string& name,
                       const nlohmann::ordered_json& json);
// That warning.
void warn_not_kept(const UserError& error);

void add_dissect_damage(Commands& commands, CLI::App* dissect);
void add_dissect_routing(Commands& commands, CLI::App* dissect);
void add_dissect_seeds(Commands& commands, CLI::App* dissect);
void add_dissect_used(Commands& commands, CLI::App* dissect);

}  // namespace assay
