// Options that several commands share.
#include "tools/commands.h"

namespace assay {

CLI::Option* add_set_option(CLI::App* subcommand, std::vector<std::string>& sets) {
  return subcommand
      ->add_option("--set", sets, "change one field: SECTION.KEY=VALUE (may be repeated)")
      ->allow_extra_args(false);
}

}  // namespace assay
