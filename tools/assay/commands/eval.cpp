// assay eval: measures a checkpoint's validation loss, bits per byte and CORE.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "base/build_info.h"
#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "comm/agree.h"
#include "comm/launch.h"
#include "data/hash_files.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/config/schedule.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/progress.h"
#include "eval/validation.h"
#include "lab/runs/core_parts.h"
#include "models/audit/audit_report.h"
#include "models/decoder/recipe.h"
#include "models/linear/precision.h"
#include "session/eval_file.h"
#include "session/ranks.h"
#include "session/run_data.h"
#include "session/same_on_all.h"
#include "session/session_device.h"
#include "session/unread_sources.h"
#include "tools/assay/commands.h"
#include "tools/assay/core_evaluation.h"
#include "tools/assay/eval_source.h"
#include "tools/assay/launch_ranks.h"
#include "tools/assay/print_json.h"
#include "tools/assay/print_warning.h"
#include "tools/assay/training_plan.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct EvalArguments {
  std::string checkpoint;
  std::vector<std::string> tasks = {"loss", "bpb"};
  CoreEvaluation core;
  std::vector<std::string> sets;
  std::string device = "auto", part, part_file, rows_file;
  std::vector<std::string> merge;
  int64_t ranks = 1;
  bool json = false, alone = false, plan = false;
  bool explicit_tasks = false;  // the user named them
  std::vector<std::string> command;
};

bool wants(const EvalArguments& a, const char* task) {
  return std::find(a.tasks.begin(), a.tasks.end(), task) != a.tasks.end();
}

// UserError where a rank would measure other text, or count other bytes of it. Collective.
void require_same_text(Ranks& ranks, const RunData& data) {
  std::string order;
  for (const std::string& file : data.val) order += data.hashed.at(file).sha256 + "\n";
  const std::string tokenizer =
      data.tokenizer.empty() ? "none" : tokenizer_hash(read_tokenizer(data.tokenizer));
  require_same_on_all(ranks, {{"data.val, SHA-256", sha256_hex(order).substr(0, 16)},
                              {"tokenizer, SHA-256", tokenizer.substr(0, 16)}});
}

// Uses the same tokens as the run's own evaluations.
std::vector<EvalResult> validate(const EvalArguments& a, const CheckpointSource& source,
                                 Ranks* ranks) {
  const Config& config = source.config;
  const RunData data = machine_by_machine(ranks, [&] {
    RunData found = data_of_checkpoint(source);
    if (ranks) found.hashed = hash_files(found.val, UseCache::kYes);
    return found;
  });
  if (ranks) require_same_text(*ranks, data);
  if (a.explicit_tasks && wants(a, "bpb") && data.token_bytes.empty()) {
    throw UserError("bits per byte need the tokenizer, and the run has none",
                    "give it: --set data.tokenizer=FILE; or --tasks loss");
  }
  const int32_t mask_id = config.data.mask_eos ? data.eot : -1;
  const ValidationSet::Config set{.files = data.val,
                                  .tokens = config.eval.tokens,
                                  .sequence = config.run.sequence,
                                  .micro_batch = config.run.micro_batch,
                                  .vocab_size = id_limit(config, data)};
  Validation validation(set, config.eval.every, data.token_bytes, mask_id, "val",
                        ranks ? &ranks->group() : nullptr);
  LoadedModel loaded(
      source, a.device,
      {.positions = config.run.sequence, .rows = config.run.micro_batch * config.run.sequence},
      mask_id, ranks);
  const UnreadSources unread = unread_sources(data, validation.tokens(), config.run.sequence);
  if ((!ranks || ranks->first()) && !unread.none()) {
    print_warning(unread_text(unread, validation.tokens()),
                  to_read_all(unread, "--set eval.tokens=", "--set 'data.val=[FILE]'"));
  }
  validation.plan(loaded.plan);
  loaded.allocate();
  return validation.run(loaded.on, *loaded.model);
}

CoreEvaluation core_of(const EvalArguments& a) {
  CoreEvaluation evaluation = a.core;
  evaluation.device = a.device;
  if (a.alone) evaluation.way = ScorerConfig::Way::kPlainLoop;
  if (!a.part.empty()) evaluation.part = parse_core_part(a.part);
  return evaluation;
}

void require_bundle(const EvalArguments& a) {
  if (!a.core.bundle.empty()) return;
  throw UserError("CORE needs its bundle",
                  "give --bundle FOLDER; bash tools/get_core.sh downloads it");
}

// The file of --rows, opened before anything is scored; null without it, and on other ranks than
// the first.
std::unique_ptr<AtomicFile> rows_file(const EvalArguments& a, Ranks* ranks) {
  const auto open = [&] {
    const bool mine = !a.rows_file.empty() && (!ranks || ranks->first());
    return mine ? std::make_unique<AtomicFile>(a.rows_file) : nullptr;
  };
  return ranks ? together(ranks->group(), open) : open();
}

void write_rows(AtomicFile& file, const CoreReport& report) {
  const std::string text = core_rows_text(report);
  file.write(text.data(), text.size());
  file.commit();
}

std::string not_compared(const EvalArguments& a) {
  return "nothing is left to compare " + a.core.tokenizer + " with, and the run has not read it";
}

constexpr const char* kElsewhere = "write the part elsewhere: --output FILE";

std::string part_file_of(const EvalArguments& a, const CheckpointSource& source,
                         const CorePart& part) {
  if (!a.part_file.empty()) return a.part_file;
  if (!a.sets.empty()) {
    throw UserError("--set measures otherwise than the run, which keeps parts of its own score",
                    kElsewhere);
  }
  if (!tokenizer_was_compared(source, a.core.tokenizer)) {
    throw UserError(not_compared(a) + ": the part may be no figure of the run", kElsewhere);
  }
  const std::string run = require_run_of(source, "has the part");
  return evaluation_file(run, source.state.step,
                         strprintf(".core-%ld-of-%ld", long(part.index + 1), long(part.count)));
}

// Scores one part of CORE and writes it to a file, by default beside the run's evaluations. The
// file is opened first: what cannot be written is not computed. If its disk is full at the end, the
// part is printed instead.
int evaluate_part(const EvalArguments& a) {
  const CorePart part = parse_core_part(a.part);
  if (a.tasks != std::vector<std::string>{"core"}) {
    throw UserError("--part works only for core", "give --tasks core --part " + a.part);
  }
  require_bundle(a);
  const CheckpointSource source = open_with_sets(a.checkpoint, a.sets, backend_of(a.device));
  const auto file = [&] {
    try {
      return std::make_unique<AtomicFile>(part_file_of(a, source, part));
    } catch (const UserError& error) {
      throw UserError(error.what(), kElsewhere);
    }
  }();
  const std::unique_ptr<AtomicFile> rows = rows_file(a, nullptr);
  const CoreReport report = evaluate_core(source, core_of(a));
  const std::string json = json_text(core_part_json(report, part), 1) + "\n";
  if (a.json) std::fputs(json.c_str(), stdout);
  try {
    file->write(json.data(), json.size());
    file->commit();
  } catch (const UserError& error) {
    if (!a.json) std::fputs(json.c_str(), stdout);
    throw UserError(error.what(), "the part is on standard output instead: save it as a file");
  }
  if (!a.json) {
    std::printf("part %s of CORE: %ld prompts in %.1f s\nwritten to %s\n", a.part.c_str(),
                long(report.work.prompts), report.total_seconds(), file->path().c_str());
  }
  if (rows) write_rows(*rows, report);
  return kExitDone;
}

int merge_parts(const EvalArguments& a) {
  if (!a.checkpoint.empty()) {
    throw UserError("--merge takes only files of parts, not " + a.checkpoint,
                    "assay eval --merge PART ...");
  }
  const CoreReport report = merge_core_parts(a.merge);
  if (a.json) {
    ordered_json result;
    result["checkpoint"] = report.checkpoint;
    result["step"] = report.step;
    result["commit"] = build_info().commit;
    result["core"] = core_json(report);
    print_json(result);
  } else {
    std::printf("%s, step %ld\n%s", report.checkpoint.c_str(), long(report.step),
                core_text(report).c_str());
  }
  return kExitDone;
}

int print_plan(const EvalArguments& a) {
  const CheckpointSource source = open_with_sets(a.checkpoint, a.sets, backend_of(a.device));
  const int64_t sequence = source.config.run.sequence;
  const EvaluationSize size =
      wants(a, "core")
          ? EvaluationSize{.positions = a.core.max_tokens > 0 ? a.core.max_tokens : sequence,
                           .rows = batch_rows(core_of(a))}
          : EvaluationSize{.positions = sequence, .rows = source.config.run.micro_batch * sequence};
  const LoadedModel loaded(source, a.device, size);
  if (a.json) {
    print_json(plan_json(loaded.plan));
    return kExitDone;
  }
  std::ostringstream text;
  loaded.plan.print(text);
  std::fputs(text.str().c_str(), stdout);
  return kExitDone;
}

// Where the result was recorded; nothing, with a note, for a checkpoint in no run, and with a
// warning if it cannot be written: what was measured is printed all the same.
std::optional<RecordedEvaluation> recorded(const CheckpointSource& source,
                                           const ordered_json& result) {
  const std::string run = run_of(source);
  if (run.empty()) {
    std::fflush(stdout);
    std::fprintf(stderr, "note: not recorded: %s is in no run (RUN/checkpoints/step-N)\n",
                 source.folder.c_str());
    return std::nullopt;
  }
  try {
    return record_evaluation(run, source.state.step, result);
  } catch (const UserError& error) {
    print_warning(std::string("not recorded in the run: ") + error.what(), error.hint());
    return std::nullopt;
  }
}

// Records what was measured with the run's own configuration, and in tokens of its tokenizer as far
// as that is known.
void record(const EvalArguments& a, const CheckpointSource& source, ordered_json result) {
  if (!a.sets.empty()) return;
  if (result.contains("core") && !tokenizer_was_compared(source, a.core.tokenizer)) {
    std::fflush(stdout);
    std::fprintf(stderr, "warning: CORE is not recorded in the run: %s\n", not_compared(a).c_str());
    result.erase("core");
    if (!wants(a, "loss") && !wants(a, "bpb")) return;
  }
  const auto where = recorded(source, result);
  if (where && where->kept_core) {
    std::fflush(stdout);
    std::fprintf(
        stderr,
        "note: %s keeps its CORE, of more rows or longer prompts than this one, or of tasks "
        "that it lacks, or all of CORE, which this one is not\n",
        where->path.c_str());
  }
  if (where && where->changed && !a.json) std::printf("recorded in %s\n", where->path.c_str());
}

// What it was measured over: bytes, or tokens.
bool is_in_bytes(const EvalResult& r) {
  return r.metric == "bits_per_byte";
}

std::string result_line(const EvalResult& r) {
  return strprintf("%s %s %.4f over %s %s\n", r.task.c_str(), r.metric.c_str(),
                   unsigned_nan(r.value), grouped(r.n).c_str(),
                   is_in_bytes(r) ? "bytes" : "tokens");
}

// --set of a recipe that may compute finite values from the same weights; "" if there is none. In
// fp32 there is no computing with masters in bf16.
std::string wider_recipe(const Config& config, bool quantised) {
  const PrecisionConfig& p = config.precision;
  const bool in_bf16 = config.optimizer.state == StateFormat::kBf16;
  if (in_bf16 ? !quantised : p.recipe == "fp32") return "";
  return std::string("--set precision.recipe=") + (in_bf16 ? "bf16" : "fp32") +
         (p.override_.empty() ? "" : " --set 'precision.override=[]'");
}

// Weights that were loaded are finite: what is computed with them overflows. recipe: resolved.
void warn_not_finite(const CheckpointSource& source, const std::string& recipe) {
  Config config = source.config;
  config.precision.recipe = recipe;
  const bool in_tail = precision_phase(config, source.state.step) != std::string("recipe");
  const std::string wider = wider_recipe(
      config, !in_tail && (is_quantised_recipe(recipe) || !config.precision.override_.empty()));
  std::fflush(stdout);
  std::fprintf(stderr,
               "warning: the validation loss is NaN or infinite in %s\n"
               "hint: an earlier checkpoint of the run may be sound%s\n",
               in_tail ? "bf16" : recipe.c_str(),
               wider.empty() ? "" : (", or this one with " + wider).c_str());
}

void require_same_evaluation(const EvalArguments& a, const CheckpointSource& source, Ranks& ranks) {
  std::string words;
  for (size_t i = 1; i < a.command.size(); ++i) words += (i > 1 ? " " : "") + a.command[i];
  Config config = source.config;
  config.precision.recipe = resolved_recipe(config.precision.recipe, backend_of(a.device));
  const std::string device =
      device_with_instructions(device_name_of(a.device), config, CpuWork::kEvaluation);
  require_same_on_all(ranks,
                      {{"command", words},
                       {"device", device},
                       {"checkpoint, SHA-256 of " + std::string(kCheckpointManifest),
                        sha256_file(source.folder + "/" + kCheckpointManifest).substr(0, 16)}});
}

// Measures and prints, as this process's rank of `ranks` or alone.
int evaluate_here(const EvalArguments& a, Ranks* ranks) {
  const bool core = wants(a, "core");
  const CheckpointSource source = open_with_sets(a.checkpoint, a.sets, backend_of(a.device), ranks);
  if (ranks) require_same_evaluation(a, source, *ranks);
  ordered_json result;
  result["checkpoint"] = source.folder;
  result["step"] = source.state.step;
  result["commit"] = build_info().commit;
  result["device"] = device_name_of(a.device);
  const std::string recipe = resolved_recipe(source.config.precision.recipe, backend_of(a.device));
  result["recipe"] = recipe;
  result["phase"] = precision_phase(source.config, source.state.step);
  if (!a.sets.empty()) result["set"] = a.sets;
  const std::unique_ptr<AtomicFile> rows = rows_file(a, ranks);
  std::optional<CoreReport> report;
  std::string text;
  bool finite = true;
  if (wants(a, "loss") || wants(a, "bpb")) {
    for (const EvalResult& r : validate(a, source, ranks)) {
      finite = finite && std::isfinite(r.value);
      const bool asked = wants(a, r.metric == "loss_nats" ? "loss" : "bpb");
      if (!asked) continue;
      result[r.task + "_" + r.metric] = r.value;
      result[r.task + (is_in_bytes(r) ? "_bytes" : "_loss_tokens")] = r.n;
      text += result_line(r);
    }
  }
  if (core) {
    report = evaluate_core(source, core_of(a), ranks);
    result["core"] = core_json(*report);
    text += core_text(*report);
  }
  if (ranks && !ranks->first()) return kExitDone;
  if (a.json) {
    print_json(result);
  } else {
    std::printf("%s, step %ld\n%s", source.folder.c_str(), long(source.state.step), text.c_str());
  }
  if (!finite) warn_not_finite(source, recipe);
  // First the rows, which nothing else has: neither loses the other.
  const auto unwritten = problem_of([&] {
    if (rows) write_rows(*rows, *report);
  });
  record(a, source, result);
  if (unwritten) throw *unwritten;
  return kExitDone;
}

// What the user gave of the options that only the scoring of CORE has.
std::string core_option(const EvalArguments& a) {
  const CoreEvaluation& core = a.core;
  if (!a.rows_file.empty()) return "--rows";
  if (!core.bundle.empty()) return "--bundle";
  if (!core.tasks.empty()) return "--core-tasks";
  if (core.max_rows > 0) return "--max-rows";
  if (core.max_tokens > 0) return "--max-tokens";
  if (!core.tokenizer.empty()) return "--tokenizer";
  if (core.batch > 0) return "--batch";
  return a.alone ? "--one-at-a-time" : "";
}

// What the user gave beside --merge that says how to score, which the parts did.
std::string option_beside_merge(const EvalArguments& a) {
  if (const std::string core = core_option(a); !core.empty()) return core;
  if (a.explicit_tasks && a.tasks != std::vector<std::string>{"core"}) return "--tasks";
  if (!a.sets.empty()) return "--set";
  if (a.device != "auto") return "--device";
  if (a.ranks > 1) return "--ranks";
  return a.plan ? "--plan" : "";
}

int evaluate(const EvalArguments& a) {
  if (!a.part_file.empty() && a.part.empty()) {
    throw UserError("--output is only for --part", "other results: assay eval RUN --json > FILE");
  }
  if (!a.merge.empty()) {
    const std::string beside = option_beside_merge(a);
    if (beside.empty()) return merge_parts(a);
    throw UserError("--merge takes no " + beside + ": the parts' files say how they were scored",
                    "assay eval --merge PART ...");
  }
  const std::string only_core = core_option(a);
  if (!only_core.empty() && !wants(a, "core")) {
    throw UserError(only_core + " is only for core", "give --tasks core --bundle FOLDER");
  }
  if (!a.part.empty() && (a.ranks > 1 || launched_processes() > 1)) {
    throw UserError("--part " + a.part + " is of one process, not of ranks",
                    "give --ranks alone, which share the rows, or start every part by itself");
  }
  if (a.ranks > 1) require_no_launcher(a.ranks);
  if (a.checkpoint.empty()) throw UserError("RUN is missing", "assay eval --help");
  if (a.plan) return print_plan(a);
  if (!a.part.empty()) return evaluate_part(a);
  if (wants(a, "core")) require_bundle(a);
  if (a.ranks > 1) {
    return launch_ranks({.ranks = a.ranks, .command = without_rank_options(a.command), .run = ""});
  }
  const std::unique_ptr<Ranks> ranks = Ranks::join();
  if (!ranks) return evaluate_here(a, nullptr);
  return ranks->run([&] {
    ranks->watch({});
    ranks->doing("evaluation", 0, Control::Pace::kSlow);
    return evaluate_here(a, ranks.get());
  });
}

}  // namespace

void add_eval_command(Commands& commands) {
  auto a = std::make_shared<EvalArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "eval", "measure a checkpoint's validation loss, bits per byte and CORE");
  sub->add_option("RUN", a->checkpoint,
                  "a run (its newest checkpoint is used) or a checkpoint: RUN/checkpoints/step-N");
  add_set_option(sub, a->sets);
  CLI::Option* tasks =
      sub->add_option("--tasks", a->tasks,
                      "what to measure, comma-separated: loss, bpb, core (default: loss,bpb)")
          ->delimiter(',')
          ->check(CLI::IsMember({"loss", "bpb", "core"}));
  sub->add_option("--bundle", a->core.bundle,
                  "for core: folder with core.yaml, eval_meta_data.csv and eval_data");
  sub->add_option("--core-tasks", a->core.tasks, "for core: only these tasks, comma-separated")
      ->delimiter(',');
  sub->add_option(
         "--max-rows", a->core.max_rows,
         "for core: score at most this many rows per task, which is not CORE (default: all)")
      ->check(above_zero());
  sub->add_option("--max-tokens", a->core.max_tokens,
                  "for core: longer prompts lose their beginning (default: the sequence length of "
                  "training)")
      ->check(whole_between(2, 1 << 20));
  sub->add_option("--tokenizer", a->core.tokenizer,
                  "for core: the tokenizer, if it is not the one of the run's data");
  sub->add_option("--device", a->device, "cpu, cuda or auto (the GPU if one is usable)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_option("--batch", a->core.batch,
                  "for core: tokens per forward pass (default: 2048 on a CPU, 4096 on a GPU)")
      ->check(whole_between(1, 1 << 24));
  sub->add_flag(
      "--one-at-a-time", a->alone,
      "for core: a plain loop, for comparison: one prompt per pass, all its tokens "
      "through every layer and the head; the scores are the same on a CPU, but where rows "
      "share a scale (fp8_tensor, nvfp4)");
  sub->add_option("--ranks", a->ranks,
                  "with N processes on this machine, which share the work, as those of mpirun or "
                  "srun do without --ranks; loss and bits per byte are those of one process to the "
                  "bit")
      ->check(above_zero());
  sub->add_option("--part", a->part,
                  "for core on several processes: I/N scores every N-th row, starting with the "
                  "I-th, or every N-th block of 256 rows where rows share a scale");
  sub->add_option("-o,--output", a->part_file,
                  "for --part: the file to write (default: "
                  "RUN/evals/step-N.core-I-of-N.json); with --set it must be given");
  sub->add_option("--merge", a->merge,
                  "compute the CORE score from the files of all parts; takes no RUN")
      ->excludes("--part");
  sub->add_option(
         "--rows", a->rows_file,
         "for core: write each row's answer to this file, as JSON Lines: nats per token of "
         "every option, the chosen one, the right one")
      ->excludes("--merge");
  sub->add_flag("--plan", a->plan, "print the memory plan and exit");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay eval runs/moe                                        the newest checkpoint\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle      CORE: 22 few-shot tasks\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle --core-tasks copa,winograd\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle --part 2/4   the second of four "
      "processes\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle --rows rows.jsonl\n"
      "  assay eval runs/moe --set precision.recipe=bf16            in another recipe\n"
      "  assay eval runs/moe --ranks 2                              two processes share the work\n"
      "  assay eval --merge runs/moe/evals/step-*.core-*-of-4.json          the score of all four\n"
      "The result is also written to RUN/evals/step-N.json; if that is not possible, it "
      "is only printed, with a warning. With --set and --merge it is only printed; --part "
      "writes a file of its own. docs/eval.md defines the "
      "measures.");
  commands.on_chosen(sub, [a, tasks, &commands] {
    a->explicit_tasks = tasks->count() > 0;
    a->command = commands.arguments;
    return evaluate(*a);
  });
}

}  // namespace assay
