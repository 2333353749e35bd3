#include "engine/run/imported_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/shell_word.h"
#include "data/json_text.h"
#include "engine/run/run_dir.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool is_imported(const std::string& run) {
  std::error_code ignored;
  return !run.empty() && fs::exists(fs::path(run) / kImportedFile, ignored);
}

std::string imported_text(const std::string& run, const char* key) {
  return is_imported(run) ? text_or_empty(json_in_file(run + "/" + kImportedFile), key) : "";
}

void require_within_window(const std::string& run, int64_t context, const std::string& setting) {
  if (!is_imported(run)) return;
  const auto imported = json_in_file(run + "/" + kImportedFile);
  if (!imported.is_object() || !imported.contains(kImportedWindow)) return;
  const auto& window = imported[kImportedWindow];
  if (!window.is_number_integer() || window.get<int64_t>() >= context) return;
  throw UserError(strprintf("%s is %ld, but the model was imported with a sliding window of %ld",
                            setting.c_str(), long(context), long(window.get<int64_t>())),
                  strprintf("sliding windows are not supported: at most %ld tokens do not need one",
                            long(window.get<int64_t>())));
}

std::string imported_folder(const std::string& run) {
  try {
    return imported_text(run, kImportedFolder);
  } catch (const UserError&) {
    return "";  // the file cannot be read
  }
}

std::string import_again(const std::string& run) {
  const std::string folder = imported_folder(run);
  return "assay import " + (folder.empty() ? "MODEL" : shell_word(folder)) + " -o NEW --config " +
         shell_word(run + "/" + kRunConfig) + " --set FIELD=VALUE";
}

void require_no_imported_weights(const std::string& run) {
  if (!is_imported(run)) return;
  throw UserError(run +
                      " began from imported weights: --fresh would delete them, and begin from "
                      "random ones",
                  "to begin from them again, in another folder: " + import_again(run) +
                      "; to train such a model from random weights: another --run");
}

std::string random_weights_text(const std::string& config) {
  const fs::path folder = fs::path(config).parent_path();
  const std::string run = folder.empty() ? "." : folder.string();
  if (!is_imported(run)) return "";
  return config + " is of an imported model, but a run in another folder begins from random " +
         "weights; to begin from the imported ones: " + import_again(run);
}

}  // namespace assay
