#include "engine/telemetry/exported.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/check.h"
#include "data/json_text.h"

namespace assay {
namespace {

// The command of the launch that came last; empty where meta.json has none.
std::vector<std::string> last_command(const std::string& run) {
  std::vector<std::string> words;
  try {
    const nlohmann::json meta = json_in_file(run + "/meta.json");
    if (!meta.is_object() || !meta.contains("command") || !meta["command"].is_array()) return {};
    for (const nlohmann::json& word : meta["command"]) {
      words.push_back(word.is_string() ? word.get<std::string>() : "");
    }
  } catch (const UserError&) {  // a file that cannot be read says nothing
  }
  return words;
}

// The run of a folder RUN/checkpoints/step-N; other folders as they are.
std::string without_checkpoint(const std::string& folder) {
  std::filesystem::path step = folder;
  if (!step.has_filename()) step = step.parent_path();  // a slash at the end
  const std::filesystem::path checkpoints = step.parent_path();
  const bool is_one = checkpoints.filename() == "checkpoints" && checkpoints.has_parent_path();
  return is_one ? checkpoints.parent_path().string() : folder;
}

}  // namespace

std::optional<std::string> exported_from(const std::string& run) {
  const std::vector<std::string> words = last_command(run);
  const bool exports = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--export" || word.starts_with("--export=");
  });
  if (!exports || words.size() < 4 || words[1] != "dissect" || words[2] != "used") {
    return std::nullopt;
  }
  // An option in front of the run may have a value.
  return words[3].starts_with("-") ? "" : without_checkpoint(words[3]);
}

}  // namespace assay
