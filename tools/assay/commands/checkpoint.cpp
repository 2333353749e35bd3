// assay checkpoint list, merge: the checkpoints of a run; one of several ranks as one of one rank.
#include "engine/run/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "base/shell_word.h"
#include "engine/run/checkpoint_merge.h"
#include "engine/run/folder_lock.h"
#include "engine/run/own_folder.h"
#include "engine/run/run_dir.h"
#include "lab/receipt/receipt.h"
#include "lab/runs/text_table.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct CheckpointArguments {
  std::string path;
  bool json = false;
};

struct Listed {
  std::string folder;
  int64_t step = 0, bytes = 0;
  std::optional<CheckpointManifest> manifest;  // nothing if it cannot be read
  bool best = false;
  std::string problem;
};

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  for (const std::string& name : names_in(folder)) {
    std::error_code ignored;
    const auto size = fs::file_size(fs::path(folder) / name, ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::string megabytes(int64_t bytes) {
  return strprintf("%.1f MB", double(bytes) / 1e6);
}

std::string problem_text(const std::string& folder) {
  try {
    return checkpoint_problem(folder);
  } catch (const ReadFailed& error) {
    return error.what();
  }
}

std::vector<Listed> checkpoints_of(const std::string& run) {
  const Checkpoints checkpoints(run, 1, nullptr);
  const std::optional<int64_t> best = checkpoints.best_step();
  std::vector<Listed> all;
  for (const std::string& folder : checkpoints.all()) {
    Listed one = {.folder = folder,
                  .step = step_of(fs::path(folder).filename().string()),
                  .bytes = bytes_in(folder),
                  .manifest = std::nullopt,
                  .problem = problem_text(folder)};
    one.best = best == one.step;
    try {
      one.manifest = read_checkpoint_manifest(folder);
    } catch (const UserError&) {  // the problem says why
    }
    // A run that trains removes old ones meanwhile.
    std::error_code ignored;
    if (fs::exists(folder, ignored) || ignored) all.push_back(one);
  }
  return all;
}

ordered_json list_json(const std::string& run, const std::vector<Listed>& all) {
  ordered_json j;
  j["run"] = run;
  j["checkpoints"] = ordered_json::array();
  for (const Listed& c : all) {
    ordered_json one;
    one["step"] = c.step;
    one["folder"] = c.folder;
    one["format"] = c.manifest ? ordered_json(c.manifest->format()) : ordered_json();
    one["ranks"] = c.manifest ? ordered_json(c.manifest->ranks) : ordered_json();
    one["bytes"] = c.bytes;
    one["milestone"] = c.manifest && c.manifest->milestone;
    one["best"] = c.best;
    one["valid"] = c.problem.empty();
    one["problem"] = c.problem.empty() ? ordered_json() : ordered_json(c.problem);
    j["checkpoints"].push_back(one);
  }
  return j;
}

int list(const CheckpointArguments& a) {
  const std::string run = require_run(a.path).string();
  const std::vector<Listed> all = checkpoints_of(run);
  const bool valid =
      std::all_of(all.begin(), all.end(), [](const Listed& c) { return c.problem.empty(); });
  const int code = valid ? kExitDone : kExitVerificationFailed;
  if (a.json) {
    print_json(list_json(run, all));
    return code;
  }
  if (all.empty()) {
    std::printf("%s has no checkpoint\n", run.c_str());
    return kExitDone;
  }
  TextTable table({"checkpoint", "format", "ranks", "size", "kept as", "state"});
  for (const Listed& c : all) {
    const bool milestone = c.manifest && c.manifest->milestone;
    const std::string kept = milestone && c.best ? "milestone, best"
                             : milestone         ? "milestone"
                             : c.best            ? "best"
                                                 : "";
    table.add({fs::path(c.folder).filename().string(),
               c.manifest ? std::to_string(c.manifest->format()) : "",
               c.manifest ? std::to_string(c.manifest->ranks) : "", megabytes(c.bytes), kept,
               c.problem.empty() ? "valid" : c.problem});
  }
  std::printf("%s", table.text().c_str());
  return code;
}

int merge(const CheckpointArguments& a) {
  const std::string folder = require_checkpoint(a.path, [](const std::string& warning) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  });
  const fs::path run = fs::absolute(folder).parent_path().parent_path();
  std::error_code ignored;
  const bool in_run = fs::exists(run / "config.yaml", ignored);
  std::optional<FolderLock> lock;
  if (in_run) {
    lock.emplace(run.string(), "copy the checkpoint's folder and merge the copy");
    require_own_folder((run / "checkpoints").string());
    require_no_link(folder);
  }

  const CheckpointManifest before = read_checkpoint_manifest(folder);
  const bool merged = merge_checkpoint(folder);
  const int64_t bytes = bytes_in(folder);
  const bool has_receipt = merged && in_run && fs::exists(run / kReceiptName, ignored);
  if (a.json) {
    ordered_json j;
    j["checkpoint"] = folder;
    j["step"] = before.step;
    j["ranks"] = before.ranks;
    j["merged"] = merged;
    j["bytes"] = bytes;
    print_json(j);
  } else if (merged) {
    std::printf("%s: the files of %ld ranks are merged, %s\n", folder.c_str(), long(before.ranks),
                megabytes(bytes).c_str());
  } else {
    std::printf("%s is of format 1: there is nothing to merge\n", folder.c_str());
  }
  if (has_receipt) {
    std::fprintf(stderr, "note: the receipt may list the files of ranks: assay receipt make %s\n",
                 shell_word(run.string()).c_str());
  }
  return kExitDone;
}

void add_list(Commands& commands, CLI::App* checkpoint) {
  auto a = std::make_shared<CheckpointArguments>();
  CLI::App* sub = checkpoint->add_subcommand(
      "list", "the checkpoints of a run: step, format, ranks, size, and whether they are valid");
  sub->add_option("RUN", a->path, "directory of a run")->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Every file is read and compared with the hash in its MANIFEST.json. Exit 2: one is "
      "damaged.\n"
      "Example:\n"
      "  assay checkpoint list runs/moe");
  commands.on_chosen(sub, [a] { return list(*a); });
}

void add_merge(Commands& commands, CLI::App* checkpoint) {
  auto a = std::make_shared<CheckpointArguments>();
  CLI::App* sub = checkpoint->add_subcommand(
      "merge", "rewrite a checkpoint of several ranks as one rank would have written it");
  sub->add_option("RUN", a->path,
                  "a run (its newest checkpoint is used) or a checkpoint: RUN/checkpoints/step-N")
      ->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "The checkpoint's folder then has model.safetensors and optimizer.safetensors in place of "
      "the files of the ranks, to the byte what one rank would have saved. An interrupted merge "
      "leaves a valid checkpoint. It needs room for a second copy on the disk, and little memory.\n"
      "Of the commands of assay only dissect used --export needs this. A receipt that lists "
      "the files of the ranks no longer holds: make it again.\n"
      "Examples:\n"
      "  assay checkpoint merge runs/moe\n"
      "  assay checkpoint merge runs/moe/checkpoints/step-00000720");
  commands.on_chosen(sub, [a] { return merge(*a); });
}

}  // namespace

void add_checkpoint_commands(Commands& commands) {
  CLI::App* checkpoint = commands.app.add_subcommand(
      "checkpoint", "a run's checkpoints: list them, merge the files of several ranks");
  checkpoint->require_subcommand(1);
  checkpoint->footer(
      "Examples:\n"
      "  assay checkpoint list runs/moe    what there is, and whether it is valid\n"
      "  assay checkpoint merge runs/moe   one model.safetensors for other programs\n"
      "docs/train.md describes checkpoints.");
  add_list(commands, checkpoint);
  add_merge(commands, checkpoint);
}

}  // namespace assay
