#include "tools/assay/core_evaluation.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "data/progress.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/run/checkpoint_merge.h"

namespace assay {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Everything that the answers depend on besides the names of tasks and checkpoint; parts are merged
// only if they agree in it.
nlohmann::ordered_json origin(const CheckpointSource& source, const Tokenizer& tokenizer,
                              const LoadedModel& loaded,
                              const std::vector<CoreExamples>& examples) {
  nlohmann::ordered_json j;
  j["model.safetensors"] = merged_model_sha256(source.folder);
  j["tokenizer"] = tokenizer_hash(tokenizer);
  j["recipe"] = loaded.session.config.precision.recipe;
  j["device"] = loaded.session.backend == Backend::kGpu ? "cuda" : "cpu";
  for (const CoreExamples& e : examples) {
    j["rows of " + e.task().label] = sha256_file(e.task().path);
    j["delimiter of " + e.task().label] = e.task().delimiter;
  }
  return j;
}

}  // namespace

int64_t batch_rows(const CoreEvaluation& a) {
  if (a.batch > 0) return a.batch;
  return backend_of(a.device) == Backend::kGpu ? 4096 : 2048;
}

CoreReport evaluate_core(const CheckpointSource& source, const CoreEvaluation& a) {
  const CoreBundle bundle = with_tasks(read_core_bundle(a.bundle), a.tasks, "--core-tasks");
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
  for (const CoreTask& task : bundle.tasks) {
    examples.emplace_back(task, read_core_rows(task), a.max_rows);
    tokens += estimated_tokens(examples.back(), tokenizer, report.max_tokens);
  }
  LoadedModel loaded(source, a.device, {.positions = report.max_tokens, .rows = batch_rows(a)});
  loaded.allocate();
  ModelScorer scorer(loaded.on, *loaded.model, {.batch_rows = loaded.rows, .way = a.way});
  const CorePart part = a.part.value_or(CorePart{});
  if (a.part) report.origin = origin(source, tokenizer, loaded, examples);
  tokens /= part.count;
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
