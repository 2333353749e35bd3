#include "tools/eval_file.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace assay {

using nlohmann::ordered_json;

std::string record_evaluation(const std::string& run, int64_t step, const ordered_json& result) {
  make_folders(run + "/evals");
  const std::string path = strprintf("%s/evals/step-%08ld.json", run.c_str(), long(step));
  ordered_json all = ordered_json::object();
  if (std::filesystem::exists(path)) {
    all = ordered_json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
    if (!all.is_object()) {
      throw UserError(path + " is no JSON object",
                      "it is damaged: move it away, and evaluate again");
    }
  }
  all.update(result);
  write_file_atomic(path, all.dump(1) + "\n");
  return path;
}

}  // namespace assay
