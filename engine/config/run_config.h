// Sections run, eval and telemetry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/choice.h"
#include "engine/config/field_check.h"

namespace assay {

struct RunConfig {
  int64_t steps = 1000;
  int64_t batch_tokens = 8192;
  int64_t sequence = 256;
  int64_t micro_batch = 8;
  int64_t seed = 1;
  double target_loss = 0.0;
  int64_t threads = 0;
  int64_t checkpoint_every = 0;
  double checkpoint_minutes = 5;
  int64_t keep_checkpoints = 2;
  int64_t milestone_every = 0;
  bool keep_best = false;
  int64_t log_every = 1;
  int64_t print_every = 1;
};

template <typename V>
void visit(V& v, RunConfig& c) {
  v("steps", c.steps, "optimizer steps", {.low = 1, .on_resume = OnResume::kSchedule});
  v("batch_tokens", c.batch_tokens, "tokens per optimizer step", at_least(1));
  v("sequence", c.sequence, "positions of one sequence (T)", at_least(1));
  v("micro_batch", c.micro_batch, "sequences computed at once (B)", at_least(1));
  v("seed", c.seed, "seed of the initial weights and of every random draw", not_negative());
  v("target_loss", c.target_loss, "stop at the first evaluation at or below it; 0 = never",
    free_on_resume(not_negative()));
  v("threads", c.threads, "CPU threads; 0 = all cores that the process may use",
    free_on_resume(between(0, 1024)));
  v("checkpoint_every", c.checkpoint_every,
    "steps between checkpoints, beside those by time and at the end; 0 = only those",
    free_on_resume(not_negative()));
  v("checkpoint_minutes", c.checkpoint_minutes,
    "minutes between checkpoints, more where saving would take over 5% of the time; 0 = none by "
    "time",
    free_on_resume(not_negative()));
  v("keep_checkpoints", c.keep_checkpoints, "number of latest checkpoints to keep",
    free_on_resume(at_least(1)));
  v("milestone_every", c.milestone_every,
    "steps between checkpoints that are never deleted; 0 = none", free_on_resume(not_negative()));
  v("keep_best", c.keep_best, "also keep the checkpoint with the lowest validation loss",
    free_on_resume(any()));
  v("log_every", c.log_every, "steps between logged steps, in telemetry.db and log.txt",
    free_on_resume(at_least(1)));
  v("print_every", c.print_every, "logged steps between lines on the terminal",
    free_on_resume(at_least(1)));
}

struct CoreEvalConfig {
  std::string bundle;
  std::vector<std::string> tasks;
  int64_t every = 0;
  bool at_landings = false;
  int64_t max_rows = 0;
  int64_t max_tokens = 0;
};

template <typename V>
void visit(V& v, CoreEvalConfig& c) {
  v("bundle", c.bundle, "folder with core.yaml, eval_meta_data.csv and eval_data",
    free_on_resume(path()));
  v("tasks", c.tasks, "only these tasks (the score is then not CORE); empty = all",
    free_on_resume(any()));
  v("every", c.every, "steps between scores; 0 = only at the end of the run",
    free_on_resume(not_negative()));
  v("at_landings", c.at_landings, "also score at the landings of the contract",
    free_on_resume(any()));
  v("max_rows", c.max_rows, "maximum rows per task (the score is then not CORE); 0 = all",
    free_on_resume(not_negative()));
  v("max_tokens", c.max_tokens,
    "longest prompt, at most run.sequence; longer ones lose their beginning; 0 = run.sequence",
    free_on_resume(not_negative()));
}

struct SamplesConfig {
  std::vector<std::string> prompts;
  std::string file;
  int64_t tokens = 64;
  double temperature = 0.8;
  int64_t every = 0;
};

template <typename V>
void visit(V& v, SamplesConfig& c) {
  v("prompts", c.prompts, "prompts to continue", free_on_resume(any()));
  v("file", c.file, "instead of prompts: one per line; objects with \"prompt\" in a .jsonl file",
    free_on_resume(path()));
  v("tokens", c.tokens, "maximum tokens to generate per prompt",
    free_on_resume(between(1, 1 << 20)));
  v("temperature", c.temperature, "0 = greedy; 1 = the model's distribution",
    free_on_resume(not_negative()));
  v("every", c.every, "steps between samples; 0 = at every validation",
    free_on_resume(not_negative()));
}

struct EvalConfig {
  int64_t every = 100;
  bool at_start = true;
  int64_t tokens = 65536;
  int64_t source_tokens = 0;
  std::optional<CoreEvalConfig> core = {};
  std::optional<SamplesConfig> samples = {};
};

template <typename V>
void visit(V& v, EvalConfig& c) {
  v("every", c.every, "steps between validations; the last step is always validated",
    free_on_resume(at_least(1)));
  v("at_start", c.at_start, "also validate the initial weights, as step 0", free_on_resume(any()));
  v("tokens", c.tokens, "number of validation tokens, from the start of the shards", at_least(1));
  v("source_tokens", c.source_tokens,
    "validation tokens per source of a mixture; 0 = an equal share of eval.tokens", not_negative());
  v.section("core", c.core, "the CORE score during training and at the end of the run");
  v.section("samples", c.samples, "texts generated during training");
}

enum class CollapseLayers { kAny, kAll, kMean };
template <>
struct Choice<CollapseLayers> {
  static constexpr const char* kNames[] = {"any", "all", "mean"};
};

// The measures that collapse_stop may use: the normalised load measures.
std::vector<std::string> collapse_measures();

struct CollapseStopConfig {
  std::string measure = "max_load_norm";
  std::optional<double> at_least = {};
  std::optional<double> at_most = {};
  CollapseLayers layers = CollapseLayers::kAny;
  int64_t logged_steps = 10;
  std::optional<double> from = {};  // absent: 0
  friend bool operator==(const CollapseStopConfig&, const CollapseStopConfig&) = default;
};

template <typename V>
void visit(V& v, CollapseStopConfig& c) {
  v("measure", c.measure, "column of the table router_layer",
    free_on_resume(one_of(collapse_measures())));
  v("at_least", c.at_least, "collapsed if the measure is at least this",
    free_on_resume(between(0, 1)));
  v("at_most", c.at_most, "collapsed if the measure is at most this; give one of the two",
    free_on_resume(between(0, 1)));
  v("layers", c.layers, "the bound holds in any layer, in all layers, or for their mean",
    free_on_resume(any()));
  v("for", c.logged_steps, "consecutive logged steps", free_on_resume(between(1, 1000)));
  v("from", c.from,
    "share of run.steps before which logged steps do not count towards `for`; absent = 0",
    {.low = 0, .high = 1, .high_open = true, .on_resume = OnResume::kFree});
}

struct TelemetryConfig {
  int64_t window = 100;
  int64_t probe_every = 10;
  int64_t probe_tokens = 256;
  std::optional<CollapseStopConfig> collapse_stop = {};
};

template <typename V>
void visit(V& v, TelemetryConfig& c) {
  v("window", c.window, "logged steps (W) of the dead-expert rule and windowed measures",
    between(1, 1000));
  v("probe_every", c.probe_every, "logged steps between probes of routing overlap", at_least(1));
  v("probe_tokens", c.probe_tokens,
    "tokens of the fixed probe batch: whole sequences, at most a micro-batch", at_least(1));
  v.section("collapse_stop", c.collapse_stop,
            "rule by which collapsed routers stop the run with exit code 3; auto = the one that "
            "recorded runs gave (docs/early-warning.md)");
}

}  // namespace assay
