#include "session/eval_file.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {

using nlohmann::ordered_json;

std::string evaluation_file(const std::string& run, int64_t step, const std::string& suffix) {
  make_folders(run + "/evals");
  return strprintf("%s/evals/step-%08ld%s.json", run.c_str(), long(step), suffix.c_str());
}

std::string record_evaluation(const std::string& run, int64_t step, const ordered_json& result) {
  const std::string path = evaluation_file(run, step);
  ordered_json all = ordered_json::object();
  if (std::filesystem::exists(path)) {
    all = json_of<ordered_json>(read_file(path));
    if (!all.is_object()) {
      throw UserError(path + " is not a JSON object",
                      "it is damaged: move it away and evaluate again");
    }
  }
  all.update(result);
  write_file_atomic(path, all.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  return path;
}

}  // namespace assay
