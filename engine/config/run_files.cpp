#include "engine/config/run_files.h"

#include <string>
#include <system_error>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "data/json_text.h"
#include "engine/config/yaml.h"
#include "engine/telemetry/reader.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// What every version has written into it.
bool is_meta_of_launch(const fs::path& file) {
  try {
    const nlohmann::json meta = json_in_file(file.string());
    return meta.is_object() && meta.contains("config_sha256");
  } catch (const UserError&) {
    return false;
  }
}

// A checkpoint has a manifest. The folder of one that is not complete may have nothing yet.
bool has_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(".tmp-step-")) return true;
    if (name.starts_with("step-") && fs::exists(entry->path() / "MANIFEST.json", ignored)) {
      return true;
    }
  }
  return false;
}

// An empty file is what a process leaves that is killed when it begins the telemetry.
bool is_telemetry(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  if (fs::is_empty(file, ignored)) return true;
  try {
    const TelemetryReader telemetry(file.string(), Wait::kBrief);
    telemetry.last_step();  // it has the tables
    return true;
  } catch (const ReadFailed&) {  // it may be whole: a run holds it
    return true;
  } catch (const UserError&) {
    return false;
  }
}

bool is_recorded(const fs::path& config) {
  try {
    return is_recorded_text(read_regular_file(config.string()));
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder / kRunConfig, ignored)) return false;
  return is_meta_of_launch(folder / "meta.json") || has_checkpoint(folder / "checkpoints") ||
         is_telemetry(folder / "telemetry.db") || is_recorded(folder / kRunConfig);
}

}  // namespace assay
