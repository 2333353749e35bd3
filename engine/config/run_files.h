// Whether a folder is a run's, by the files beside its config.yaml.
#pragma once

#include <filesystem>

namespace assay {

// True if the folder has what a run writes beside its configuration: a meta.json of a launch, a
// checkpoint or a part of one, or telemetry. Files of these names that others wrote do not count: a
// user may keep his own configuration and checkpoints of another program in one folder.
bool has_files_of_run(const std::filesystem::path& folder);

}  // namespace assay
