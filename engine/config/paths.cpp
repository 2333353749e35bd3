#include "engine/config/paths.h"

#include <cstdlib>
#include <filesystem>

#include "base/check.h"

namespace assay {
namespace fs = std::filesystem;

namespace {

// The folder of bin/assay's prefix or of build/assay's clone; "" where it cannot be known.
fs::path root_of_program() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  return failed ? fs::path() : program.parent_path().parent_path();
}

}  // namespace

std::string preset_or_path(const std::string& path) {
  static const std::string kPresets = "models/presets/";
  std::error_code failed;
  if (!path.starts_with(kPresets) || fs::exists(path, failed)) return path;
  const fs::path root = root_of_program();
  if (root.empty()) return path;
  for (const fs::path& folder : {root / "share/assay/presets", root / kPresets}) {
    const fs::path preset = folder / path.substr(kPresets.size());
    if (fs::exists(preset, failed)) return preset.string();
  }
  return path;
}

std::string as_installed(std::string text) {
  static const std::string kBash = "bash ", kTools = "tools/", kData = " data-cache/";
  const fs::path root = root_of_program();
  if (root.empty()) return text;
  const std::string installed = (root / "share/assay/tools/").string();
  bool named = false;
  for (size_t at = 0; (at = text.find(kBash + kTools, at)) != std::string::npos;) {
    at += kBash.size();
    const size_t name = at + kTools.size();
    const std::string script = text.substr(name, text.find_first_of(" ;,)", name) - name);
    std::error_code failed;
    if (!fs::is_regular_file(installed + script, failed)) continue;
    text.replace(at, kTools.size(), installed);
    named = true;
  }
  for (size_t at = 0; named && (at = text.find(kData, at)) != std::string::npos;) {
    text.replace(at, kData.size(), " ~/.cache/assay/");
  }
  return text;
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
