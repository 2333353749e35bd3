#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "tests/fuzz/targets.h"

namespace assay::fuzz {
namespace {

const Target* const kTargets[] = {
    &kConfigTarget,      &kMatrixTarget,    &kMapClaimsTarget, &kTokenizerTarget,   &kMergesTarget,
    &kShardTarget,       &kManifestTarget,  &kDocumentsTarget, &kSafetensorsTarget, &kStateTarget,
    &kCheckpointTarget,  &kTelemetryTarget, &kLoadsTarget,     &kLetterTarget,      &kUsedTarget,
    &kModelFolderTarget, &kCoreRowsTarget,  &kCoreListTarget,  &kPromptsTarget,     &kReceiptTarget,
    &kAnchorLogTarget,   &kPublishedTarget,
};

// TMPDIR, which tools/fuzz.sh sets and empties after crashes, or in memory.
std::string base_folder() {
  const char* given = std::getenv("TMPDIR");
  if (given != nullptr && *given != '\0') return given;
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
}

struct Folder {
  std::string path;
  Folder() {
    path = base_folder() + "/assay-fuzz-" + std::to_string(getpid());
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

[[noreturn]] void give_up(const Target& target, const char* what, const std::string& text) {
  std::fprintf(stderr, "fuzz: %s: %s: %s\n", target.name, what, text.c_str());
  abort();
}

}  // namespace

std::span<const Target> targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    for (const Target* target : kTargets) list.push_back(*target);
    return list;
  }();
  return all;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : targets()) {
    if (name == target.name) return &target;
  }
  return nullptr;
}

void run(const Target& target, std::string_view bytes) {
  try {
    target.parse(bytes);
  } catch (const UserError& error) {
    if (*error.what() == '\0') give_up(target, "an error without a message", "");
    if (error.hint().empty()) give_up(target, "an error without a hint", error.what());
  } catch (const std::exception& error) {
    give_up(target, "an exception that is no UserError", error.what());
  }
}

const std::string& scratch() {
  static const Folder folder;
  return folder.path;
}

std::string put(const std::string& name, std::string_view bytes) {
  const std::string path = scratch() + "/" + name;
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), std::streamsize(bytes.size()));
  file.close();
  if (!file) {  // else the parser reads less than it should, and nothing is tested
    std::fprintf(stderr, "fuzz: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
    abort();
  }
  return path;
}

}  // namespace assay::fuzz
