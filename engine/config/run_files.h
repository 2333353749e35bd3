// Whether a folder is a run.
#pragma once

#include <filesystem>

namespace assay {

constexpr const char* kRunConfig = "config.yaml";

// Whether a run has written in the folder: its config.yaml, and beside it a meta.json of a launch,
// a checkpoint or a part of one, or telemetry; or its config.yaml alone as a run writes it, which a
// process leaves that is killed at its start. A configuration of the user's own is none, also
// beside his corpus, or beside files of these names that another program wrote.
bool is_run(const std::filesystem::path& folder);

}  // namespace assay
