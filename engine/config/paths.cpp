#include "engine/config/paths.h"

#include <cstdlib>
#include <filesystem>

#include "base/check.h"

namespace assay {
namespace fs = std::filesystem;

std::string preset_or_path(const std::string& path) {
  static const std::string kPresets = "models/presets/";
  std::error_code failed;
  if (!path.starts_with(kPresets) || fs::exists(path, failed)) return path;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return path;
  const fs::path root = program.parent_path().parent_path();
  for (const fs::path& folder : {root / "share/assay/presets", root / kPresets}) {
    const fs::path preset = folder / path.substr(kPresets.size());
    if (fs::exists(preset, failed)) return preset.string();
  }
  return path;
}

std::string path_in(const std::string& folder, const std::string& path) {
  if (!path.starts_with("~/")) return (fs::path(folder) / path).lexically_normal().string();
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    throw UserError(path + ": HOME is not set, so ~/ has no meaning", "give the whole path");
  }
  return (fs::path(home) / path.substr(2)).lexically_normal().string();
}

}  // namespace assay
