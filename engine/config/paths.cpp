#include "engine/config/paths.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace assay {
namespace fs = std::filesystem;

namespace {

// The folder of bin/assay's prefix or of build/assay's clone; "" where it cannot be known.
fs::path root_of_program() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  return failed ? fs::path() : program.parent_path().parent_path();
}

const std::string kPresets = "models/presets/";

// What a name or pattern of presets may be instead, if there is nothing of that name.
std::vector<std::string> elsewhere(const std::string& path) {
  std::error_code failed;
  const fs::path root = root_of_program();
  if (!path.starts_with(kPresets) || root.empty() || fs::exists(path, failed)) return {};
  const std::string name = path.substr(kPresets.size());
  return {(root / "share/assay/presets" / name).string(), (root / kPresets / name).string()};
}

// "docs/train.md" where it stands as a word, and was installed.
void name_documents(std::string& text, const fs::path& root) {
  static const std::string kDocs = "docs/";
  const std::string installed = (root / "share/doc/assay/").string();
  for (size_t at = 0; (at = text.find(kDocs, at)) != std::string::npos; at += kDocs.size()) {
    if (at > 0 && text.find_last_of(" (\n", at - 1) != at - 1) continue;
    const size_t name = at + kDocs.size();
    std::string document = text.substr(name, text.find_first_of(" ;,:)#\n", name) - name);
    while (document.ends_with('.')) document.pop_back();
    std::error_code failed;
    if (!fs::is_regular_file(installed + document, failed)) continue;
    text.replace(at, kDocs.size(), installed);
    at += installed.size() - kDocs.size();
  }
}

// "" where it cannot be known.
std::string home_folder() {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return home;
  passwd entry, *found = nullptr;
  std::array<char, 16384> words;
  getpwuid_r(getuid(), &entry, words.data(), words.size(), &found);
  return found == nullptr || found->pw_dir == nullptr ? "" : found->pw_dir;
}

}  // namespace

std::string preset_or_path(const std::string& path) {
  std::error_code failed;
  for (const std::string& preset : elsewhere(path)) {
    if (fs::exists(preset, failed)) return preset;
  }
  return path;
}

std::vector<std::string> presets_or_paths(const std::vector<std::string>& given) {
  std::vector<std::string> all;
  for (const std::string& path : given) {
    std::vector<std::string> found;
    if (path.find('*') != std::string::npos) found = paths_matching(path);  // given in quotes
    for (const std::string& pattern : elsewhere(path)) {
      if (found.empty()) found = paths_matching(pattern);
    }
    if (found.empty()) found = {path};
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

std::string as_installed(std::string text) {
  static const std::string kBash = "bash ", kTools = "tools/", kData = " data-cache/";
  const fs::path root = root_of_program();
  if (root.empty()) return text;
  name_documents(text, root);
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
  const std::string home = home_folder();
  if (home.empty()) {
    throw UserError(path + ": HOME is not set, and the user has no folder, so ~/ has no meaning",
                    "set HOME, or give the whole path");
  }
  return (fs::path(home) / path.substr(2)).lexically_normal().string();
}

}  // namespace assay
