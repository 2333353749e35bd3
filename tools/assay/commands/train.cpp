// assay train: arguments; session/training_run.h does the rest.
#include "tools/assay/commands/train.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/step_count.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "engine/config/check.h"
#include "engine/config/paths.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/imported_run.h"
#include "engine/run/interrupt.h"
#include "engine/run/run_dir.h"
#include "session/ranks.h"
#include "session/training_run.h"
#include "tools/assay/commands.h"
#include "tools/assay/example_config.h"
#include "tools/assay/launch_ranks.h"
#include "tools/assay/train_report.h"
#include "tools/assay/training_plan.h"

namespace assay {
namespace {

struct TrainArguments {
  std::string config;
  std::vector<std::string> sets;
  std::optional<std::string> run;
  std::string device = "auto", tune;
  std::optional<int64_t> steps, stop_after, ranks, restarts, min_ranks;
  bool fresh = false, share_gpu = false, plan = false, json = false, example_config = false,
       quiet = false;
  std::optional<std::string> help_config;  // the section; "" = every section
  std::vector<std::string> command;
};

std::string run_path(const TrainArguments& a) {
  return a.run.value_or("runs/" + std::filesystem::path(a.config).stem().string());
}

// The warm-up and warm-down of the file in proportion to fewer steps, as --set arguments: a
// schedule made for 9,536 steps does not fit into 20.
std::vector<std::string> shortened_schedule(const TrainArguments& a) {
  std::vector<std::string> sets;
  Config whole;
  try {
    whole = load_run_config(a.config, a.sets);
  } catch (const UserError&) {  // of the file's steps; load() says what is wrong with these
    return sets;
  }
  if (*a.steps <= 0 || *a.steps >= whole.run.steps) return sets;
  const ScheduleConfig& s = whole.schedule;
  struct Part {
    std::string name;
    int64_t steps;
    std::optional<double> fraction;
  };
  const Part parts[] = {{"schedule.warmup", s.warmup, s.warmup_fraction},
                        {"schedule.warmdown", s.warmdown, s.warmdown_fraction}};
  const auto given = [&](const Part& part) {
    return std::any_of(a.sets.begin(), a.sets.end(),
                       [&](const std::string& set) { return gives_field(set, part.name); });
  };
  int64_t left = *a.steps;  // what the parts that stay as they are leave to the others
  for (const Part& part : parts) {
    if (part.fraction.value_or(0) > 0) left -= fraction_of_steps(*a.steps, *part.fraction);
    if (!part.fraction && given(part)) left -= part.steps;
  }
  for (const Part& part : parts) {
    if (part.steps == 0 || part.fraction || given(part)) continue;
    const double share = double(*a.steps) / double(whole.run.steps);
    const int64_t own = std::max<int64_t>(1, std::llround(share * double(part.steps)));
    const int64_t steps = std::clamp<int64_t>(left, 0, own);
    sets.push_back(part.name + "=" + std::to_string(steps));
    left -= steps;
  }
  return sets;
}

// Which file it is that CONFIG names, where it is not in this folder.
void say_preset(const TrainArguments& a) {
  const std::string file = preset_or_path(a.config);
  if (a.quiet || file == a.config) return;
  std::fprintf(stderr, "%s is not in this folder: taking the preset %s\n", a.config.c_str(),
               file.c_str());
}

// `assay train RUN/config.yaml` means that run more often than a new one, runs/config.
void require_named_run(const TrainArguments& a) {
  const std::filesystem::path folder = std::filesystem::absolute(a.config).parent_path();
  if (a.run || std::filesystem::path(a.config).filename() != "config.yaml" || !is_run(folder)) {
    return;
  }
  const std::string given = std::filesystem::path(a.config).parent_path().string();
  const std::string run = given.empty() ? "." : given;
  throw UserError(a.config + " is the configuration of a run, and --run is not given",
                  "to continue that run: --run " + run + "; to begin another with its " +
                      (is_imported(run) ? "imported weights: " + import_again(run)
                                        : "configuration: --run and a new folder"));
}

// `assay train RUN` means to continue that run.
void require_no_folder(const TrainArguments& a) {
  const std::filesystem::path inside = std::filesystem::path(a.config) / "config.yaml";
  std::error_code ignored;
  if (!std::filesystem::exists(inside, ignored)) return;
  throw UserError(a.config + " is a folder, not a configuration",
                  "give " + inside.string() + "; if it is a run, `assay train " + inside.string() +
                      " --run " + a.config + "` continues it");
}

// UserError if the user gives the steps, by --steps or --set, and a contract gives others.
void require_free_steps(const TrainArguments& a, const ContractConfig& contract) {
  const bool free = takes_run_steps(contract.kind) && contract.horizon == 0;
  if (free && contract.reference.empty()) return;
  const auto set = std::find_if(a.sets.begin(), a.sets.end(), [](const std::string& one) {
    return gives_field(one, "run.steps");
  });
  if (!a.steps && set == a.sets.end()) return;
  const std::string given = a.steps ? strprintf("--steps %ld", long(*a.steps)) : "--set " + *set;
  throw UserError(given + ", but the contract " + name_of(contract.kind) + " fixes the steps",
                  "train a part of the contract with --set contract.fraction=0.2, or --set "
                  "contract.kind=steps and remove contract.reference and contract.horizon");
}

struct Loaded {
  Config config;
  std::string note;  // how --steps changed the schedule; "" if it did not
};

Loaded load(const TrainArguments& a) {
  std::vector<std::string> sets = a.sets;
  std::string note;
  if (a.steps) {
    for (const std::string& set : shortened_schedule(a)) {
      note += (note.empty() ? "" : ", ") + set;
      sets.push_back(set);
    }
    if (!note.empty()) {
      note = strprintf("--steps %ld shortens the schedule in proportion: ", long(*a.steps)) + note +
             " (--set run.steps keeps it)";
    }
    sets.push_back("run.steps=" + std::to_string(*a.steps));
  }
  Config config = load_run_config(a.config, sets);
  require_free_steps(a, config.contract);
  return {config, note};
}

int exit_code(RunEnd end) {
  switch (end) {
    case RunEnd::kSteps:
    case RunEnd::kTargetLoss:
    case RunEnd::kStopAfter:
      return kExitDone;
    case RunEnd::kNonFinite:
    case RunEnd::kCollapseStop:
      return kExitStoppedByGuard;
    case RunEnd::kInterrupted:
      return kExitInterrupted;
  }
  return kExitUserError;
}

TrainingRunOptions run_options(const TrainArguments& a) {
  using Start = TrainingRunOptions::Start;
  return {.folder = run_path(a),
          .start = a.fresh ? Start::kFresh : Start::kContinue,
          .command = a.command,
          .tune = a.tune,
          .quiet = a.quiet};
}

// Whether the command or its own file gives a field.
IsGiven given_by(const TrainArguments& a) {
  return [sets = a.sets, file = a.config](const std::string& field) {
    return std::any_of(sets.begin(), sets.end(),
                       [&](const std::string& set) { return gives_field(set, field); }) ||
           names_field(file, field);
  };
}

TrainCall call_of(const TrainArguments& a, const Loaded& loaded) {
  return {.config = loaded.config,
          .note = loaded.note,
          .random_weights = random_weights_text(a.config),
          .options = run_options(a),
          .device = a.device,
          .stop_after = a.stop_after,
          .share_gpu = a.share_gpu,
          .json = a.json,
          .is_given = given_by(a)};
}

// What is wrong for so many ranks is said before anything is written. A run that goes on may have
// parts of its own.
Loaded load_for(const TrainArguments& a, int64_t ranks) {
  const Loaded loaded = load(a);
  const bool goes_on = !a.fresh && std::filesystem::exists(run_path(a) + "/config.yaml");
  if (loaded.config.parallel.parts > 0 || !goes_on) require_ranks(loaded.config, ranks);
  return loaded;
}

// parallel.parts of a run that begins on so many ranks: one for each unless it is given.
ParallelConfig with_parts(ParallelConfig parallel, int64_t ranks) {
  if (parallel.parts == 0) parallel.parts = ranks;
  return parallel;
}

int launch(const TrainArguments& a) {
  const Loaded loaded = load_for(a, *a.ranks);
  return launch_ranks({.ranks = *a.ranks,
                       .restarts = a.restarts.value_or(0),
                       .min_ranks = a.min_ranks.value_or(0),
                       .command = without_rank_options(a.command),
                       .run = run_path(a),
                       .parallel = with_parts(loaded.config.parallel, *a.ranks),
                       .stop_after = a.stop_after.value_or(0),
                       .fresh = a.fresh});
}

int train(const TrainArguments& a) {
  if (a.help_config) {
    const std::string& section = *a.help_config;
    std::fputs((section.empty() ? help_config() : help_config_section(section)).c_str(), stdout);
    return kExitDone;
  }
  if (a.example_config) {
    std::fputs(example_config(), stdout);
    return kExitDone;
  }
  if (a.config.empty()) {
    throw UserError("no configuration given",
                    "assay train CONFIG.yaml; presets are in models/presets");
  }
  require_no_folder(a);
  if ((a.restarts || a.min_ranks) && !a.ranks) {
    throw UserError("--restarts and --min-ranks need --ranks",
                    "under mpirun and srun the job's scheduler restarts it: at exit code 4, or 137 "
                    "where the launcher saw a rank die");
  }
  if ((a.restarts || a.min_ranks) && *a.ranks == 1) {
    throw UserError("--restarts and --min-ranks need --ranks 2 or more",
                    "one rank is this process, which nobody restarts");
  }
  if (a.min_ranks && (a.restarts.value_or(0) == 0 || *a.min_ranks > *a.ranks)) {
    throw UserError("--min-ranks needs --restarts, and at most as many ranks as --ranks",
                    "it is the fewest ranks that a restart may take");
  }
  if (a.ranks) require_no_launcher(*a.ranks);
  if (a.plan) {
    const int64_t ranks = std::min<int64_t>(a.ranks.value_or(1), INT32_MAX);
    print_training_plan(load(a).config, a.device, int(ranks), run_options(a), given_by(a),
                        a.json ? PlanOutput::kJson : PlanOutput::kTable);
    return kExitDone;
  }
  require_named_run(a);
  if (a.fresh) require_no_imported_weights(run_path(a));
  if (a.ranks.value_or(1) > 1) return launch(a);
  const std::unique_ptr<Ranks> ranks = Ranks::join();
  if (!ranks || ranks->first()) say_preset(a);
  if (!ranks) {
    require_run_or_empty(run_path(a));
    return train_here(call_of(a, load(a)), nullptr);
  }
  return ranks->run([&] {
    const Loaded loaded = together(ranks->group(), [&] {
      require_run_or_empty(run_path(a));
      return load_for(a, ranks->size());
    });
    const ParallelConfig& parallel = loaded.config.parallel;
    ranks->watch({.silence_s = parallel.silence_s,
                  .stuck_s = parallel.stuck_s,
                  .folder = run_path(a),
                  .goes_on = [run = run_path(a), whole = with_parts(parallel, ranks->size()),
                              fresh = a.fresh](int64_t step) {
                    return how_it_goes_on(run, whole, step, fresh);
                  }});
    return train_here(call_of(a, loaded), ranks.get());
  });
}

}  // namespace

int train_here(const TrainCall& call, Ranks* ranks) {
  TrainingRun run(
      Session(call.config, {.device = call.device, .ranks = ranks, .share_gpu = call.share_gpu}),
      call.options);
  // Before open(): a run that is interrupted while it resumes ends with a checkpoint too.
  const Interrupt interrupt(ranks && !ranks->first() ? Interrupt::Say::kNothing
                                                     : Interrupt::Say::kWhatHappens);
  run.open();
  announce_run(run, call.is_given);
  if (!call.random_weights.empty() && !run.checkpoint()) run.log().warn(call.random_weights);
  if (!call.note.empty()) run.log().info(call.note);
  const RunResult result = run.train(
      {.stop_requested = [&] { return interrupt.requested(); }, .stop_after = call.stop_after});
  if (!ranks || ranks->first()) report_run(run, result, call.options.start, call.json);
  return exit_code(result.end);
}

void add_train_command(Commands& commands) {
  auto a = std::make_shared<TrainArguments>();
  CLI::App* sub =
      commands.app.add_subcommand("train", "train a model; repeat the command to resume");
  sub->add_option("CONFIG", a->config, "configuration file, e.g. models/presets/cpu/moe.yaml");
  add_set_option(sub, a->sets);
  sub->add_option("--run", a->run, "run directory (default: runs/<name of CONFIG>)");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_option("--tune", a->tune,
                  "file of `assay tune`: the algorithms of the GPU's dense products; the run keeps "
                  "a copy and goes on with it (default: cuBLASLt's first proposals)");
  sub->add_option("--steps", a->steps,
                  "train N steps; fewer than the configuration's shorten its warm-up and "
                  "warm-down in proportion")
      ->transform(whole_number());
  sub->add_option("--stop-after", a->stop_after,
                  "stop after N more steps with a checkpoint; the schedule does not change")
      ->check(above_zero())
      ->transform(whole_number());
  sub->add_option("--ranks", a->ranks,
                  "train with N processes on this machine, which share every batch (docs/"
                  "scale-out.md); on several machines start them with mpirun or srun")
      ->check(above_zero());
  sub->add_option(
         "--restarts", a->restarts,
         "with --ranks: when a rank is lost, start again from the last checkpoint, at most "
         "N times without a new checkpoint in between")
      ->check(zero_or_more());
  sub->add_option("--min-ranks", a->min_ranks,
                  "with --restarts: if no new checkpoint came, go on with fewer ranks, at least N")
      ->check(above_zero());
  sub->add_flag("--share-gpu", a->share_gpu, "let several ranks use one GPU, for tests");
  sub->add_flag("--fresh", a->fresh,
                "delete the existing run and start over; an imported one is refused");
  sub->add_flag("-q,--quiet", a->quiet,
                "show only warnings and the result; log.txt of the run has every line");
  sub->add_flag("--plan", a->plan,
                "print the memory plan and exit; with --ranks that of the fullest of N ranks, "
                "without starting them");
  sub->add_flag("--json", a->json, "print one JSON object on stdout at the end");
  sub->add_option_function<std::string>(
         "--help-config", [a](const std::string& section) { a->help_config = section; },
         "list every field of a configuration, or those of one section such as model.moe")
      ->expected(0, 1);
  sub->add_flag("--example-config", a->example_config,
                "print a configuration with comments that trains as it stands");
  sub->footer(
      "Examples:\n"
      "  assay train models/presets/cpu/moe.yaml                    train on generated stories\n"
      "  assay train --example-config > my.yaml                     a configuration to edit\n"
      "  assay train models/presets/cpu/moe.yaml --set run.seed=2 --run runs/moe-seed2\n"
      "  assay train models/presets/cpu/moe.yaml --plan             list the planned memory\n"
      "  assay train models/presets/cpu/moe.yaml --ranks 2 --set run.micro_batch=8     two "
      "processes share batches\n"
      "  assay train models/presets/cpu/moe.yaml --plan --ranks 8 --set run.micro_batch=2   the "
      "memory of eight of them\n"
      "Ctrl-C, SIGTERM, SIGQUIT or a closed terminal write a checkpoint (exit 130); the same "
      "command resumes from it. Ctrl-C again, a second later, ends at once. By default a "
      "checkpoint is also written every five minutes.\n"
      "Exit 3: a guard stopped the run: the loss, a gradient, a quantised operand or the last "
      "validation loss is NaN or infinite, or the routers collapsed by the rule of "
      "telemetry.collapse_stop. Exit 4: a rank "
      "was "
      "lost; the same command goes on from the last checkpoint.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return train(*a);
  });
}

}  // namespace assay
