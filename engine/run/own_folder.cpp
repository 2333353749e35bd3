#include "engine/run/own_folder.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/shell_word.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".run";

// Without links, so that another path to the run means the same one.
std::string real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path.empty() ? "." : path, error);
  if (!error) return real.string();
  throw UserError(path.string() + " is a link that leads to no folder: " + error.message(),
                  "make the folder that it names, or remove the link");
}

}  // namespace

void require_own_folder(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_symlink(folder, ignored)) return;
  const std::string target = real_path(folder);
  const std::string run = real_path(fs::path(folder).parent_path());
  const std::string mark = target + "/" + kMark, text = run + "\n";
  if (names_in(target).empty()) return write_file_atomic(mark, text);
  // A run that several machines or containers see by different paths has a line for each.
  if (fs::exists(mark, ignored) &&
      ("\n" + read_regular_file(mark)).find("\n" + text) != std::string::npos) {
    return;
  }
  throw UserError(folder + " is a link to " + target +
                      ", which holds files and is not marked as a folder of this run",
                  "if the run may write and remove files there: echo " + shell_word(run) + " >> " +
                      shell_word(mark) + "; else remove the link");
}

bool holds_only_mark(const std::string& folder) {
  return names_in(folder) == std::vector<std::string>{kMark};
}

}  // namespace assay
