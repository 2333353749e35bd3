// assay eval: a checkpoint's validation loss, bits per byte and CORE.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "data/progress.h"
#include "eval/core_run.h"
#include "eval/validation.h"
#include "lab/core_report.h"
#include "tools/build_info.h"
#include "tools/commands.h"
#include "tools/loaded_model.h"
#include "tools/run_data.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> tasks = {"loss", "bpb"};
  std::string bundle, tokenizer;
  std::vector<std::string> core_tasks;
  std::string device = "auto";
  int64_t max_rows = 0, max_tokens = 0, batch = 4096;
  bool json = false, alone = false;
};

bool wants(const Arguments& a, const char* task) {
  return std::find(a.tasks.begin(), a.tasks.end(), task) != a.tasks.end();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The same tokens as the run's own evaluations.
std::vector<EvalResult> validate(const CheckpointSource& source, const std::string& device) {
  const Config& config = source.config;
  const RunData data = resolve_data(config);
  const int32_t mask_id = config.data.mask_eos ? data.eot : -1;
  const ValidationSet::Config set{.files = data.val,
                                  .tokens = config.eval.tokens,
                                  .sequence = config.run.sequence,
                                  .micro_batch = config.run.micro_batch,
                                  .vocab_size = config.model.vocab_size};
  Validation validation(set, config.eval.every, data.token_bytes, mask_id);
  LoadedModel loaded(
      source, device,
      {.positions = config.run.sequence, .rows = config.run.micro_batch * config.run.sequence},
      mask_id);
  validation.plan(loaded.plan);
  loaded.allocate();
  return validation.run(loaded.on, *loaded.model);
}

std::vector<CoreTask> chosen_tasks(const CoreBundle& bundle, const Arguments& a) {
  if (a.core_tasks.empty()) return bundle.tasks;
  std::vector<CoreTask> chosen;
  for (const std::string& label : a.core_tasks) {
    const auto at = std::find_if(bundle.tasks.begin(), bundle.tasks.end(),
                                 [&](const CoreTask& t) { return t.label == label; });
    if (at == bundle.tasks.end()) {
      std::string known;
      for (const CoreTask& t : bundle.tasks) known += (known.empty() ? "" : ", ") + t.label;
      throw UserError("no task " + label + " with a file in " + bundle.folder,
                      "there are " + known);
    }
    chosen.push_back(*at);
  }
  return chosen;
}

// Prompt tokens of a task, from a few of its questions.
int64_t estimated_tokens(const CoreExamples& examples, const Tokenizer& tokenizer,
                         int64_t max_tokens) {
  constexpr int64_t kLookedAt = 8;
  Encoder encoder(tokenizer);
  const int64_t looked = std::min(kLookedAt, examples.size());
  int64_t tokens = 0;
  for (int64_t i = 0; i < looked; ++i) {
    const CoreQuestion q =
        examples.question(i * examples.size() / looked, encoder, tokenizer.eot(), max_tokens);
    for (const CorePrompt& p : q.prompts) tokens += int64_t(p.tokens.size());
  }
  return tokens * examples.size() / looked;
}

CoreReport score_core(const CheckpointSource& source, const Arguments& a) {
  const CoreBundle bundle = read_core_bundle(a.bundle);
  const Tokenizer tokenizer = checkpoint_tokenizer(source, a.tokenizer);
  CoreReport report;
  report.checkpoint = source.folder;
  report.step = source.state.step;
  report.bundle = a.bundle;
  report.max_tokens = a.max_tokens > 0 ? a.max_tokens : source.config.run.sequence;
  report.max_rows = a.max_rows;
  report.missing = bundle.missing;

  std::vector<CoreExamples> examples;
  int64_t tokens = 0;
  for (const CoreTask& task : chosen_tasks(bundle, a)) {
    examples.emplace_back(task, read_core_rows(task), a.max_rows);
    tokens += estimated_tokens(examples.back(), tokenizer, report.max_tokens);
  }
  for (const CoreTask& task : bundle.tasks) {
    const bool chosen = std::any_of(examples.begin(), examples.end(), [&](const CoreExamples& e) {
      return e.task().label == task.label;
    });
    if (!chosen) report.missing.push_back(task.label);
  }
  LoadedModel loaded(source, a.device, {.positions = report.max_tokens, .rows = a.batch});
  loaded.allocate();
  ModelScorer scorer(
      loaded.on, *loaded.model,
      {.batch_rows = loaded.rows,
       .sharing = a.alone ? ScorerConfig::Sharing::kOff : ScorerConfig::Sharing::kOn});
  Progress progress("core", tokens, {"k prompt tokens", 1e3});
  for (const CoreExamples& task : examples) {
    const auto start = std::chrono::steady_clock::now();
    const CoreWork before = report.work;
    report.tasks.push_back(run_core_task(
        scorer, task, tokenizer, report.max_tokens, [&](int64_t, const CoreWork& work) {
          report.work = {.prompts = before.prompts + work.prompts,
                         .prompt_tokens = before.prompt_tokens + work.prompt_tokens};
          progress.update(std::min(report.work.prompt_tokens, tokens));
        }));
    report.seconds.push_back(seconds_since(start));
  }
  report.rows_computed = scorer.rows_computed();
  return report;
}

// evals/ of the run that the checkpoint belongs to: RUN/checkpoints/step-N -> RUN/evals/step-N.json. What was measured of
// the same step before is kept beside it.
std::string record(const CheckpointSource& source, const ordered_json& result) {
  namespace fs = std::filesystem;
  const fs::path folder(source.folder);
  const fs::path evals = folder.parent_path().parent_path() / "evals";
  make_folders(evals.string());
  const std::string path = (evals / (folder.filename().string() + ".json")).string();
  ordered_json all = ordered_json::object();
  if (fs::exists(path)) {
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

int evaluate(const Arguments& a) {
  const bool core = wants(a, "core");
  if (core && a.bundle.empty()) {
    throw UserError("CORE needs its bundle", "--bundle FOLDER; bash tools/get_core.sh fetches it");
  }
  const CheckpointSource source = open_checkpoint(a.checkpoint);
  ordered_json result;
  result["checkpoint"] = source.folder;
  result["step"] = source.state.step;
  result["commit"] = build_info().commit;
  std::string text;
  if (wants(a, "loss") || wants(a, "bpb")) {
    for (const EvalResult& r : validate(source, a.device)) {
      const bool asked = wants(a, r.metric == "loss_nats" ? "loss" : "bpb");
      if (!asked) continue;
      result[r.task + "_" + r.metric] = r.value;
      text +=
          strprintf("%s %s %.4f over %ld\n", r.task.c_str(), r.metric.c_str(), r.value, long(r.n));
    }
  }
  if (core) {
    const CoreReport report = score_core(source, a);
    result["core"] = core_json(report);
    text += core_text(report);
  }
  const std::string path = record(source, result);
  if (a.json) {
    std::printf("%s\n", result.dump(1).c_str());
  } else {
    std::printf("%s, step %ld\n%srecorded in %s\n", source.folder.c_str(), long(source.state.step),
                text.c_str(), path.c_str());
  }
  return kExitDone;
}

}  // namespace

void add_eval_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "eval", "validation loss, bits per byte and CORE of a checkpoint");
  sub->add_option("RUN", a->checkpoint,
                  "a run, for its newest checkpoint, or a checkpoint: RUN/checkpoints/step-N")
      ->required();
  sub->add_option("--tasks", a->tasks,
                  "what to measure, comma-separated: loss, bpb, core (loss,bpb)")
      ->delimiter(',')
      ->check(CLI::IsMember({"loss", "bpb", "core"}));
  sub->add_option("--bundle", a->bundle,
                  "folder with core.yaml, eval_meta_data.csv and eval_data, for core");
  sub->add_option("--core-tasks", a->core_tasks, "only these tasks of CORE, comma-separated")
      ->delimiter(',');
  sub->add_option("--max-rows", a->max_rows, "at most so many rows of a task (all)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--max-tokens", a->max_tokens,
                  "longer prompts lose their beginning (the sequence length of training)")
      ->check(CLI::Range(2, 1 << 20));
  sub->add_option("--tokenizer", a->tokenizer, "for core, if not the one of the run's data");
  sub->add_option("--device", a->device, "auto (the GPU where one can be used), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  sub->add_option("--batch", a->batch, "rows at once, for core (4096)")->check(CLI::PositiveNumber);
  sub->add_flag("--one-at-a-time", a->alone,
                "core as a plain loop, for comparison: a prompt a pass, all its rows through every "
                "layer; the scores are the same");
  sub->add_flag("--json", a->json, "one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay eval runs/moe                                        the newest checkpoint\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle      CORE: 22 few-shot tasks\n"
      "  assay eval runs/moe --tasks core --bundle eval_bundle --core-tasks copa,winograd\n"
      "The result is also written to RUN/evals/step-N.json. docs/eval.md says what is measured.");
  commands.on_chosen(sub, [a] { return evaluate(*a); });
}

}  // namespace assay
