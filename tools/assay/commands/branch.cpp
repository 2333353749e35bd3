// assay branch: goes on from a checkpoint of a run with a warm-down of its own.
#include "session/branch.h"

#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/shell_word.h"
#include "comm/launch.h"
#include "models/audit/audit_report.h"
#include "tools/assay/commands.h"
#include "tools/assay/commands/train.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct BranchArguments {
  BranchRequest request;
  std::string device = "auto";
  bool plan = false, json = false, quiet = false;
  std::vector<std::string> command;
};

std::string branch_text(const Branch& b) {
  return strprintf(
      "branch of %s at step %s (%.3g%% of its contract): %s steps more with a warm-down, %s in "
      "all, "
      "in %s\n",
      b.trunk.c_str(), grouped(b.at.step).c_str(), 100.0 * double(b.at.step) / double(b.horizon),
      grouped(b.at.warmdown()).c_str(), grouped(b.at.steps).c_str(), b.folder.c_str());
}

// What branch_text() says.
nlohmann::ordered_json branch_json(const Branch& b) {
  return {{"run", b.folder},
          {"trunk", b.trunk},
          {"checkpoint", b.checkpoint},
          {"step", b.at.step},
          {"share_of_contract", double(b.at.step) / double(b.horizon)},
          {"warmdown_steps", b.at.warmdown()},
          {"steps", b.at.steps}};
}

void require_one_of_two(const BranchRequest& request) {
  const char* const where = "give --at SHARE or --at-step N";
  const char* const down = "give --warmdown SHARE or --warmdown-steps N";
  if (request.at && request.at_step) {
    throw UserError(
        strprintf("--at %g and --at-step %ld are both given", *request.at, long(*request.at_step)),
        where);
  }
  if (request.warmdown && request.warmdown_steps) {
    throw UserError(strprintf("--warmdown %g and --warmdown-steps %ld are both given",
                              *request.warmdown, long(*request.warmdown_steps)),
                    down);
  }
  if (!request.at && !request.at_step) throw UserError("where to branch is missing", where);
  if (!request.warmdown && !request.warmdown_steps) {
    throw UserError("the warm-down is missing", down);
  }
}

// Trains what make_branch() made. A check that --set skips is told with the `assay train` that goes
// on with the branch: `assay branch` has no --set.
int train_branch(const TrainCall& call) {
  try {
    return train_here(call, nullptr);
  } catch (const UserError& error) {
    const std::string unchecked = "--set data.check_tokenizer=false";
    std::string hint = error.hint();
    const size_t at = hint.find(unchecked);
    if (at == std::string::npos) throw;
    const std::string folder = call.options.folder;
    std::string command = "assay train " + shell_word(folder + "/config.yaml") + " --run " +
                          shell_word(folder) + " " + unchecked;
    if (call.device != "auto") command += " --device " + call.device;
    throw UserError(error.what(), hint.replace(at, unchecked.size(), command));
  }
}

int run_branch(const BranchArguments& a) {
  require_one_of_two(a.request);
  if (launched_processes() > 1) {
    throw UserError("assay branch trains in one process",
                    "make the branch without a launcher, stop it, and go on with several: assay "
                    "train FOLDER/config.yaml --run FOLDER");
  }
  const Branch branch = plan_branch(a.request);
  if (a.plan || !a.quiet) std::fputs(branch_text(branch).c_str(), a.json ? stderr : stdout);
  if (a.plan) {
    if (a.json) print_json(branch_json(branch));
    return kExitDone;
  }
  make_branch(branch);
  return train_branch({.config = branch.config,
                       .note = "",
                       .options = {.folder = branch.folder,
                                   .start = TrainingRunOptions::Start::kContinue,
                                   .command = a.command,
                                   .tune = "",
                                   .quiet = a.quiet},
                       .device = a.device,
                       .json = a.json});
}

}  // namespace

void add_branch_command(Commands& commands) {
  auto a = std::make_shared<BranchArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "branch", "go on from a checkpoint of a run with a warm-down of its own");
  sub->add_option("RUN", a->request.trunk, "the run to branch from, finished or still training")
      ->required();
  sub->add_option("--at", a->request.at,
                  "where: a share of the run's contract or steps that has a checkpoint, e.g. 0.2")
      ->check(share_up_to(1));
  sub->add_option("--at-step", a->request.at_step, "where: a step that has a checkpoint")
      ->check(above_zero());
  sub->add_option("--warmdown", a->request.warmdown,
                  "length of the warm-down: its share of all steps of the branch, e.g. 0.2")
      ->check(share_up_to(0.999));
  sub->add_option("--warmdown-steps", a->request.warmdown_steps, "length of the warm-down in steps")
      ->check(above_zero());
  sub->add_option("--run", a->request.folder, "folder of the branch (default: RUN-branch-STEPS)");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_flag("--dry-run", a->plan, "print what would be trained, and exit");
  sub->add_flag("-q,--quiet", a->quiet, "show only warnings and the result");
  sub->add_flag("--json", a->json,
                "print one JSON object on stdout at the end, or with --dry-run now");
  sub->footer(
      "The branch is a run like any other: its steps, tokens and seconds include the trunk's up to "
      "the checkpoint, and its bits are those of a run of its configuration from the first step. "
      "Ctrl-C saves; the same command goes on, as does assay train FOLDER/config.yaml --run "
      "FOLDER, "
      "also with --ranks.\n"
      "Examples:\n"
      "  assay branch runs/moe --at 0.2 --warmdown 0.2          an annealed model at a fifth\n"
      "  assay branch runs/moe --at-step 360 --warmdown-steps 90 --run runs/moe-450\n"
      "docs/branch.md explains where one can branch.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return run_branch(*a);
  });
}

}  // namespace assay
