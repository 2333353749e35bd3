#include "session/step_measurements.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/run_dir.h"
#include "session/eval_file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (!error) return;
  throw UserError("cannot remove " + file.string() + ": " + error.message(),
                  "check the permissions there");
}

void put_aside(const fs::path& evaluations, const std::string& name) {
  const fs::path from = evaluations / name, folder = evaluations / kGivenUp;
  require_no_link(folder.string());
  make_folders(folder.string());
  std::error_code error;
  fs::rename(from, folder / name, error);
  if (!error) return;
  throw UserError(
      "cannot move " + from.string() + " to " + folder.string() + ": " + error.message(),
      "check the permissions there");
}

// The number of lines that were removed.
int64_t cut_samples(const fs::path& file, int64_t step) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return 0;
  const std::string lines = read_file(file.string());
  const std::string kept = sample_lines_up_to(lines, step);
  if (kept == lines) return 0;
  if (kept.empty()) {
    remove_file(file);
  } else {
    write_file_atomic(file.string(), kept);
  }
  const auto count = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  return count(lines) - count(kept);
}

}  // namespace

std::string sample_lines_up_to(const std::string& lines, int64_t step) {
  std::istringstream in(lines);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto sample = json_of<nlohmann::json>(line);
    const bool counts = sample.is_object() && sample.contains("step") &&
                        sample["step"].is_number_integer() && sample["step"] <= step;
    if (counts) kept += line + "\n";
  }
  return kept;
}

int64_t evaluated_step(const std::string& name) {
  return name.ends_with(".json") ? step_of(name.substr(0, name.find('.'))) : -1;
}

std::vector<std::string> evaluation_files(const std::string& run) {
  const fs::path folder = fs::path(run) / kEvaluations;
  std::vector<std::string> files;
  std::error_code ignored;
  for (const std::string& name : names_in(folder.string())) {
    if (evaluated_step(name) >= 0 && fs::is_regular_file(folder / name, ignored)) {
      files.push_back(name);
    }
  }
  return files;
}

GivenUp give_up_measurements_after(const std::string& run, int64_t step) {
  GivenUp given_up;
  const auto attempt = [&](const std::function<void()>& work) {
    try {
      work();
    } catch (const UserError& error) {
      if (given_up.problem.empty()) given_up.problem = error.what();
    }
  };
  std::vector<std::string> files;
  attempt([&] { files = evaluation_files(run); });
  for (const std::string& name : files) {
    if (evaluated_step(name) <= step) continue;
    attempt([&] {
      put_aside(fs::path(run) / kEvaluations, name);
      given_up.evaluations.push_back(name);
    });
  }
  attempt([&] { given_up.sample_lines = cut_samples(fs::path(run) / kSamplesFile, step); });
  return given_up;
}

}  // namespace assay
