// `assay train --example-config`, and the sections of --help-config.
#pragma once

#include <string>

namespace assay {

// A configuration with comments that trains as it stands, on generated stories.
const char* example_config();

// The fields of one section and of the sections in it: "model.moe", "run". UserError with the
// nearest name if there is none.
std::string help_config_section(const std::string& section);

}  // namespace assay
