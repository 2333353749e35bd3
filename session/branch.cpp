#include "session/branch.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/copy_file.h"
#include "base/file.h"
#include "base/new_folder.h"
#include "base/step_count.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/config/differences.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"
#include "engine/telemetry/telemetry.h"
#include "models/audit/horizon.h"
#include "session/eval_file.h"
#include "session/step_measurements.h"

namespace assay {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// "steps 18 (5%), 36 (10%)": where a run has checkpoints.
std::string checkpoints_text(const std::string& run, int64_t horizon) {
  std::string text;
  for (const std::string& folder : Checkpoints(run, 1, nullptr).all()) {
    const int64_t step = step_of(fs::path(folder).filename().string());
    text += strprintf("%s%ld (%.3g%%)", text.empty() ? "" : ", ", long(step),
                      100.0 * double(step) / double(horizon));
  }
  return text.empty() ? "it has none" : "it has steps " + text;
}

void require_checkpoint_at(const Branch& branch) {
  const std::string& folder = branch.checkpoint;
  if (!fs::exists(folder)) {
    throw UserError(
        strprintf("%s has no checkpoint of step %ld", branch.trunk.c_str(), long(branch.at.step)),
        checkpoints_text(branch.trunk, branch.horizon) +
            "; contract.landings keeps one at each of its shares, "
            "run.milestone_every one at each multiple");
  }
  if (const std::string problem = checkpoint_problem(folder); !problem.empty()) {
    throw UserError(folder + ": " + problem,
                    "choose another step; " + checkpoints_text(branch.trunk, branch.horizon));
  }
}

Json origin_of(const Branch& branch) {
  Json json;
  json["trunk"] = fs::weakly_canonical(branch.trunk).string();
  json["checkpoint"] = fs::path(branch.checkpoint).filename().string();
  json["manifest_sha256"] = sha256_file(branch.checkpoint + "/" + kCheckpointManifest);
  json["state_sha256"] = sha256_file(branch.checkpoint + "/" + kCheckpointState);
  json["step"] = branch.at.step;
  json["steps"] = branch.at.steps;
  json["warmdown"] = branch.at.warmdown();
  return json;
}

std::string text_if_there(const fs::path& path) {
  return fs::exists(path) ? read_regular_file(path.string()) : "";
}

// Whether the folder has the branch. The trunk may have moved since, and may have merged the
// checkpoint's files, which leaves its state; or removed it: then one of this configuration, from
// the same weights, had it.
bool has_branch(const Branch& branch) {
  const fs::path own = branch.folder, trunk = branch.trunk;
  const Json origin = json_of<Json>(read_regular_file((own / kBranchFile).string()));
  const auto is = [&](const char* name, const Json& value) {
    return origin.contains(name) && origin[name] == value;
  };
  if (!origin.is_object() || !is("step", branch.at.step) || !is("steps", branch.at.steps)) {
    return false;
  }
  if (fs::exists(branch.checkpoint)) {
    const Json now = origin_of(branch);
    return is("manifest_sha256", now["manifest_sha256"]) || is("state_sha256", now["state_sha256"]);
  }
  const Config begun = load_config((own / "config.yaml").string());
  return begun.precision == branch.config.precision &&
         result_changing_differences(begun, branch.config, branch.at.steps).empty() &&
         text_if_there(own / kImportedFile) == text_if_there(trunk / kImportedFile);
}

void link_or_copy(const fs::path& from, const fs::path& to) {
  std::error_code no_link;
  fs::create_hard_link(fs::canonical(from), to, no_link);
  if (no_link) copy_whole_file(from, to);
}

void link_files(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const std::string& name : names_in(from.string())) link_or_copy(from / name, to / name);
}

// The texts that the trunk generated up to the step.
void copy_samples(const fs::path& from, const fs::path& to, int64_t step) {
  const std::string kept = sample_lines_up_to(text_if_there(from), step);
  if (!kept.empty()) write_file_atomic(to.string(), kept);
}

// What was measured of the trunk up to the step: step-N.json, and files that belong to it.
void copy_evaluations(const fs::path& from, const fs::path& to, int64_t step) {
  for (const std::string& name : evaluation_files(from.string())) {
    if (evaluated_step(name) > step) continue;
    fs::create_directories(to / kEvaluations);
    copy_whole_file(from / kEvaluations / name, to / kEvaluations / name);
  }
}

// The run as it is at the checkpoint, with the configuration of the branch.
void fill(const Branch& branch, const fs::path& folder) {
  const fs::path trunk = branch.trunk;
  const fs::path checkpoints = folder / "checkpoints";
  link_files(branch.checkpoint, checkpoints / step_name(branch.at.step));
  // An imported run trained the weights of this step: a receipt begins with them.
  const fs::path imported = trunk / "checkpoints" / step_name(0);
  if (fs::exists(trunk / kImportedFile) && branch.at.step > 0 && fs::exists(imported)) {
    link_files(imported, checkpoints / step_name(0));
  }
  write_file_atomic((folder / "config.yaml").string(), to_yaml(branch.config));
  for (const char* name : {"meta.json", kTuneCopy, kProductsFile, kRunTokenizer, kImportedFile}) {
    if (fs::exists(trunk / name)) copy_whole_file(trunk / name, folder / name);
  }
  copy_telemetry(telemetry_file(trunk), telemetry_file(folder), branch.at.step);
  copy_samples(trunk / kSamplesFile, folder / kSamplesFile, branch.at.step);
  copy_evaluations(trunk, folder, branch.at.step);
  write_file_atomic((folder / kBranchFile).string(), json_text(origin_of(branch), 1) + "\n");
}

// The branch of an imported run has a copy of its tokenizer, and its configuration names that.
std::string tokenizer_of_branch(const Branch& branch) {
  const std::string named = present_tokenizer(branch.trunk, branch.config.data);
  std::error_code ignored;
  if (!fs::equivalent(named, imported_tokenizer(branch.trunk), ignored)) return named;
  return (fs::absolute(branch.folder) / kRunTokenizer).lexically_normal().string();
}

}  // namespace

Branch plan_branch(const BranchRequest& request) {
  Branch branch;
  branch.trunk = require_run(request.trunk).string();
  const Config trunk = load_config(branch.trunk + "/config.yaml");
  if (!horizon_is_known(trunk)) {
    throw UserError(request.trunk + " has not begun: its contract is not resolved",
                    "train it first");
  }
  branch.horizon = horizon(trunk);
  const int64_t step =
      request.at_step ? *request.at_step : fraction_of_steps(branch.horizon, *request.at);
  const int64_t most = std::numeric_limits<int64_t>::max() / 2;
  if (step > branch.horizon || request.warmdown_steps.value_or(0) > most) {
    throw UserError(
        strprintf("step %ld and a warm-down of %ld steps: the run has %ld steps", long(step),
                  long(request.warmdown_steps.value_or(0)), long(branch.horizon)),
        "branch at a step of the run; " + checkpoints_text(branch.trunk, branch.horizon));
  }
  branch.at = request.warmdown_steps
                  ? BranchSteps{.step = step, .steps = step + *request.warmdown_steps}
                  : branch_from(step, *request.warmdown);
  branch.folder = request.folder;
  if (branch.folder.empty()) {
    branch.folder = fs::path(branch.trunk).lexically_normal().string() +
                    strprintf("-branch-%ld", long(branch.at.steps));
  }
  branch.checkpoint = branch.trunk + "/checkpoints/" + step_name(step);
  const bool may_have_begun = fs::exists(fs::path(branch.folder) / kBranchFile);
  if (!may_have_begun) require_checkpoint_at(branch);
  branch.config = branch_config(trunk, branch.at);
  branch.config.data.tokenizer = tokenizer_of_branch(branch);
  branch.begun = may_have_begun && has_branch(branch);
  if (may_have_begun && !branch.begun) require_checkpoint_at(branch);
  return branch;
}

void make_branch(const Branch& branch) {
  const std::string& folder = branch.folder;
  if (branch.begun) return remove_left_lock(folder);
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    throw UserError(folder + " holds files already, which are not those of this branch",
                    "choose another --run, or remove it");
  }
  require_new_folder(folder, "choose another --run, or remove it");
  NewFolder made(folder);
  try {
    fill(branch, made.part());
    made.commit();
  } catch (const fs::filesystem_error& error) {
    throw UserError("cannot make " + folder + ": " + error.code().message(),
                    "free some space, or choose another --run");
  }
}

}  // namespace assay
