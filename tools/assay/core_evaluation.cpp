#include "tools/assay/core_evaluation.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "base/seconds_since.h"
#include "data/progress.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/config/schedule.h"
#include "engine/run/checkpoint_merge.h"
#include "engine/run/imported_run.h"
#include "eval/core_tasks.h"
#include "models/linear/precision.h"
#include "session/same_on_all.h"

namespace assay {

namespace {

// "fp8_tensor, first 2 blocks in bf16"; nullopt where the recipe's name says all.
std::optional<std::string> changed_recipe(const LoadedModel& loaded) {
  PrecisionConfig precision = loaded.session.config.precision;
  precision.bf16_tail = 0;  // the phase tells of it
  std::string text = precision_text(precision);
  // Only a GPU's products may be others; there is one kind where nothing is quantised.
  const bool kinds = loaded.session.backend == Backend::kGpu &&
                     (is_quantised_recipe(precision.recipe) || !precision.override_.empty());
  if (kinds && precision.products == ProductsMode::kSimulated) text += ", products decoded";
  return text == precision.recipe ? std::nullopt : std::optional(text);
}

// Whether what is computed of a row depends on the rows beside it.
bool rows_share_scales(const CheckpointSource& source, const Config& config) {
  return precision_phase(config, source.state.step) == std::string("recipe") &&
         !rows_have_own_scales(precision_table(config.precision, config.model));
}

// Everything that the answers depend on besides the names of tasks and checkpoint; parts are merged
// only if they agree in it.
nlohmann::ordered_json origin(const CheckpointSource& source, const Tokenizer& tokenizer,
                              const LoadedModel& loaded, const CoreEvaluation& a,
                              const CorePart& part, const std::vector<CoreExamples>& examples,
                              const std::vector<std::string>& rows_sha256) {
  nlohmann::ordered_json j;
  j["model.safetensors"] = merged_model_sha256(source.folder);
  j["tokenizer"] = tokenizer_hash(tokenizer);
  j["recipe"] = loaded.session.config.precision.recipe;
  // Left out otherwise, so that such parts agree with those of earlier versions.
  const std::string phase = precision_phase(loaded.session.config, source.state.step);
  if (phase != "recipe") {
    j["phase"] = phase;
  } else if (const auto changed = changed_recipe(loaded)) {
    j["precision"] = *changed;
  }
  j["device"] = loaded.session.backend == Backend::kGpu ? "cuda" : "cpu";
  if (part.block > 1) {
    j["block"] = part.block;
    j["batch"] = loaded.rows;
    if (a.way == ScorerConfig::Way::kPlainLoop) j["batch"] = "one prompt";
  }
  for (size_t i = 0; i < examples.size(); ++i) {
    const CoreTask& task = examples[i].task();
    j["rows of " + task.label] = rows_sha256[i];
    j["delimiter of " + task.label] = task.delimiter;
  }
  return j;
}

// UserError where a rank would score other rows, or read them as other tokens. Collective.
void require_same_core(Ranks& ranks, const CoreBundle& bundle, const Tokenizer& tokenizer) {
  NamedTexts mine = named_bundle(core_bundle_hashes(bundle));
  mine.emplace_back("tokenizer, SHA-256", tokenizer_hash(tokenizer).substr(0, 16));
  require_same_on_all(ranks, std::move(mine));
}

// Scores the tasks with all ranks. The first one shows the progress.
void share_core(CoreReport& report, ModelScorer& scorer, const CoreTasks& tasks, Ranks& ranks,
                int64_t tokens) {
  std::optional<Progress> progress;
  if (ranks.first()) progress.emplace("core", tokens, ProgressUnit{"k prompt tokens", 1e3});
  const EvalWatch watch{.progress =
                            [&](const std::string&, double share) {
                              if (progress) progress->update(int64_t(share * double(tokens)));
                            },
                        .interrupted = {}};
  const auto start = std::chrono::steady_clock::now();
  std::optional<CoreTaskScores> answers = score_core_tasks(&ranks.group(), scorer, tasks, watch);
  report.passed_s = seconds_since(start);
  report.tasks = std::move(answers->tasks);
  report.seconds = std::move(answers->seconds);
  report.work = answers->work;
  report.rows_computed = answers->rows_computed;
}

}  // namespace

int64_t batch_rows(const CoreEvaluation& a) {
  if (a.batch > 0) return a.batch;
  return backend_of(a.device) == Backend::kGpu ? 4096 : 2048;
}

CoreReport evaluate_core(const CheckpointSource& source, const CoreEvaluation& a, Ranks* ranks) {
  require_within_window(run_of(source), a.max_tokens, "--max-tokens");
  const CoreBundle bundle = with_tasks(read_core_bundle(a.bundle), a.tasks, "--core-tasks");
  const Tokenizer tokenizer = checkpoint_tokenizer(source, a.tokenizer);
  if (ranks) require_same_core(*ranks, bundle, tokenizer);
  CoreReport report;
  report.checkpoint = source.folder;
  report.step = source.state.step;
  report.bundle = a.bundle;
  report.max_tokens = a.max_tokens > 0 ? a.max_tokens : source.config.run.sequence;
  report.missing = bundle.missing;

  std::vector<CoreExamples> examples;
  std::vector<int64_t> tokens_of;
  int64_t tokens = 0;
  for (const CoreTask& task : bundle.tasks) {
    examples.emplace_back(task, read_core_rows(task), a.max_rows);
    report.rows_sha256.push_back(sha256_file(task.path));
    tokens_of.push_back(estimated_tokens(examples.back(), tokenizer, report.max_tokens));
    tokens += tokens_of.back();
  }
  report.max_rows = limit_of_rows(examples, a.max_rows);
  LoadedModel loaded(source, a.device, {.positions = report.max_tokens, .rows = batch_rows(a)}, -1,
                     ranks);
  loaded.allocate();
  ModelScorer scorer(loaded.on, *loaded.model, {.batch_rows = loaded.rows, .way = a.way});
  CorePart part = a.part.value_or(CorePart{});
  if (rows_share_scales(source, loaded.session.config)) part.block = kCoreBlock;
  if (a.part) {
    report.origin = origin(source, tokenizer, loaded, a, part, examples, report.rows_sha256);
  }
  tokens /= part.count;
  if (ranks) {
    share_core(report, scorer, {examples, tokens_of, tokenizer, report.max_tokens}, *ranks, tokens);
    return report;
  }
  Progress progress("core", tokens, {"k prompt tokens", 1e3});
  for (const CoreExamples& task : examples) {
    const auto start = std::chrono::steady_clock::now();
    const CoreWork before = report.work;
    report.tasks.push_back(
        run_core_task(scorer, task, tokenizer, {.max_tokens = report.max_tokens, .part = part},
                      [&](int64_t, const CoreWork& work) {
                        report.work = {.prompts = before.prompts + work.prompts,
                                       .prompt_tokens = before.prompt_tokens + work.prompt_tokens};
                        progress.update(std::min(report.work.prompt_tokens, tokens));
                      }));
    report.seconds.push_back(seconds_since(start));
  }
  report.rows_computed = scorer.rows_computed();
  return report;
}

}  // namespace assay
