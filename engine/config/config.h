// Defines every field of a run's configuration: type, default, documentation, check. YAML parsing,
// --set, --help-config, the resolved copy in the run directory, the comparison on resume and the
// start-up print are all visitors over these lists (engine/config/yaml.h).
//
// A visitor is called as v(name, field, doc, check) and v.section(name, nested, doc), where nested
// is a config struct or a std::optional of one. Field types: bool, int64_t, double, std::string,
// std::vector<std::string>, std::optional<double>, std::optional<std::vector<double>>.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay {

// Whether a field may change when a run resumes.
enum class OnResume {
  kMustMatch,  // another value would change results
  kSchedule,   // may change if the learning rates of the steps already done do not
  kFree,
};

// The values that a field may have. `choices` is for strings; numbers are finite and in [low,
// high].
struct FieldCheck {
  double low = -1e300;
  double high = 1e300;
  bool low_open = false;  // low itself is not allowed
  std::vector<std::string> choices = {};
  // Relative to the folder of the file that names it; on resume only the file name has to match.
  bool path = false;
  OnResume on_resume = OnResume::kMustMatch;
};
inline FieldCheck any() {
  return {};
}
inline FieldCheck positive() {
  return {.low = 0, .low_open = true};
}
inline FieldCheck not_negative() {
  return {.low = 0};
}
inline FieldCheck at_least(double low) {
  return {.low = low};
}
inline FieldCheck between(double low, double high) {
  return {.low = low, .high = high};
}
inline FieldCheck one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
inline FieldCheck path() {
  return {.path = true};
}
inline FieldCheck free_on_resume(FieldCheck check) {
  check.on_resume = OnResume::kFree;
  return check;
}

struct RouterConfig {
  std::string score = "sigmoid";
  double route_scale = 1.0;
  double gate_scale = 1.0;
  bool normalize_gates = true;
  double bias_rate = 0.0;
  bool bias_follows_lr = false;
  std::string aux = "none";
  double aux_alpha = 0.0;
  std::string aux_scope = "micro";
  double z_alpha = 0.0;
};

template <typename V>
void visit(V& v, RouterConfig& c) {
  v("score", c.score, "score of an expert from its logit", one_of({"sigmoid", "softmax"}));
  v("route_scale", c.route_scale, "factor on the logit inside the sigmoid", positive());
  v("gate_scale", c.gate_scale, "factor on the gates", positive());
  v("normalize_gates", c.normalize_gates, "softmax: divide the chosen gates by their sum", any());
  v("bias_rate", c.bias_rate, "step of the selection bias per optimizer step; 0 = no bias",
    not_negative());
  v("bias_follows_lr", c.bias_follows_lr, "bias_rate times the schedule's share of the peak lr",
    any());
  v("aux", c.aux, "load-balancing loss", one_of({"none", "switch", "gates"}));
  v("aux_alpha", c.aux_alpha, "weight of the load-balancing loss", not_negative());
  v("aux_scope", c.aux_scope, "counts of the micro-batch, of the step so far, or per sequence",
    one_of({"micro", "step", "sequence"}));
  v("z_alpha", c.z_alpha, "weight of mean logsumexp(logits)^2", not_negative());
}

struct MoeConfig {
  int64_t experts = 8;
  int64_t top_k = 2;
  int64_t shared = 0;
  int64_t expert_ffn = 256;
  int64_t first_dense_layers = 0;
  RouterConfig router;
};

template <typename V>
void visit(V& v, MoeConfig& c) {
  v("experts", c.experts, "routed experts per MoE layer (E)", between(1, 65536));
  v("top_k", c.top_k, "experts chosen per token (K)", between(1, 64));
  v("shared", c.shared, "shared experts, one ungated SwiGLU of width shared * expert_ffn",
    not_negative());
  v("expert_ffn", c.expert_ffn, "inner width of one expert (F)", at_least(1));
  v("first_dense_layers", c.first_dense_layers, "first blocks, which have a dense FFN of width ffn",
    not_negative());
  v.section("router", c.router, "scores, gates, balancing");
}

struct ModelConfig {
  int64_t hidden = 256;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 768;
  int64_t vocab_size = 8192;
  bool tie_embeddings = false;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool qk_norm = false;
  std::string attention_gain = "one";
  double embed_gain = 1.0;
  double logit_gain = 1.0;
  std::string init = "default";
  std::optional<MoeConfig> moe;

  // The value in use: 0 selects the default.
  int64_t resolved_kv_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t resolved_head_dim() const { return head_dim > 0 ? head_dim : hidden / heads; }
};

template <typename V>
void visit(V& v, ModelConfig& c) {
  v("hidden", c.hidden, "model width (C)", at_least(1));
  v("layers", c.layers, "blocks (L)", at_least(1));
  v("heads", c.heads, "query heads (H)", at_least(1));
  v("kv_heads", c.kv_heads, "key-value heads; 0 = heads", not_negative());
  v("head_dim", c.head_dim, "head width (D): 32, 64 or 128; 0 = hidden / heads", not_negative());
  v("ffn", c.ffn, "inner width of a dense SwiGLU (F)", at_least(1));
  v("vocab_size", c.vocab_size, "vocabulary (V), padding included", at_least(2));
  v("tie_embeddings", c.tie_embeddings, "the head uses the embedding matrix", any());
  v("rope_theta", c.rope_theta, "base of the rotary frequencies", positive());
  v("norm_eps", c.norm_eps, "epsilon of every RMSNorm", positive());
  v("qk_norm", c.qk_norm, "RMSNorm over each head of q and k before RoPE", any());
  v("attention_gain", c.attention_gain,
    "factor on the attention branch: one, or depth = 1/sqrt(2L)", one_of({"one", "depth"}));
  v("embed_gain", c.embed_gain, "factor on the embedding", positive());
  v("logit_gain", c.logit_gain, "factor on the logits", positive());
  v("init", c.init, "initial weights; nmoe also scales routed experts and router by depth",
    one_of({"default", "nmoe"}));
  v.section("moe", c.moe, "mixture of experts; absent = dense");
}

struct OptimizerConfig {
  std::string kind = "adamw";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::optional<double> router_lr;
  std::optional<double> expert_lr;
  std::optional<double> expert_beta2;
};

template <typename V>
void visit(V& v, OptimizerConfig& c) {
  v("kind", c.kind, "optimizer", one_of({"adamw"}));
  v("lr", c.lr, "peak learning rate", positive());
  v("beta1", c.beta1, "first-moment decay", between(0, 0.999999));
  v("beta2", c.beta2, "second-moment decay", between(0, 0.9999999));
  v("eps", c.eps, "added to the root of the second moment", positive());
  v("weight_decay", c.weight_decay, "decoupled decay of attention, FFN and expert weights",
    not_negative());
  v("clip", c.clip, "largest global gradient norm; 0 = no clipping", not_negative());
  v("router_lr", c.router_lr, "peak learning rate of routers; absent = lr", positive());
  v("expert_lr", c.expert_lr, "peak learning rate of routed experts; absent = lr", positive());
  v("expert_beta2", c.expert_beta2, "second-moment decay of routed experts; absent = beta2",
    between(0, 0.9999999));
}

struct ScheduleConfig {
  int64_t warmup = 0;
  int64_t warmdown = 0;
  std::optional<double> warmup_fraction = {};
  std::optional<double> warmdown_fraction = {};
  std::string decay = "linear";
  double floor = 0.0;
};

template <typename V>
void visit(V& v, ScheduleConfig& c) {
  v("warmup", c.warmup, "steps of linear warm-up", not_negative());
  v("warmdown", c.warmdown, "steps of decay at the end", not_negative());
  v("warmup_fraction", c.warmup_fraction, "instead of warmup: share of the run's steps",
    between(0, 1));
  v("warmdown_fraction", c.warmdown_fraction, "instead of warmdown: share of the run's steps",
    between(0, 1));
  v("decay", c.decay, "linear ends at lr / warmdown, cosine at floor",
    one_of({"linear", "cosine"}));
  v("floor", c.floor, "final learning rate of the cosine", not_negative());
}

struct SynthConfig {
  int64_t train_tokens = 8000000;
  int64_t val_tokens = 200000;
  int64_t vocab_size = 4096;
  int64_t seed = 1;
};

template <typename V>
void visit(V& v, SynthConfig& c) {
  v("train_tokens", c.train_tokens, "approximate tokens of the generated training stories",
    at_least(1000));
  v("val_tokens", c.val_tokens, "approximate tokens of the generated validation stories",
    at_least(1000));
  v("vocab_size", c.vocab_size, "vocabulary of the tokenizer trained on them", at_least(257));
  v("seed", c.seed, "seed of the generator", not_negative());
}

struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> val;
  std::optional<std::vector<double>> mixture = {};
  std::string tokenizer;
  bool check_tokenizer = true;
  std::string cache = "data-cache";
  bool mask_eos = false;
  std::optional<SynthConfig> synth;
};

template <typename V>
void visit(V& v, DataConfig& c) {
  v("train", c.train, "training shards: files or patterns, read in lexicographic order", path());
  v("val", c.val, "validation shards", path());
  v("mixture", c.mixture,
    "sampling weights of the entries of train, which become sources of sequences; absent = all "
    "shards in order",
    positive());
  v("tokenizer", c.tokenizer, "tokenizer.json of the shards; needed for bits per byte", path());
  v("check_tokenizer", c.check_tokenizer,
    "refuse shards whose manifest names another tokenizer than the model's", free_on_resume(any()));
  v("cache", c.cache, "folder for the files that synth builds", free_on_resume(path()));
  v("mask_eos", c.mask_eos, "exclude targets equal to the EOT id from the loss", any());
  v.section("synth", c.synth, "build the embedded corpus instead of reading files");
}

struct RunConfig {
  int64_t steps = 1000;
  int64_t batch_tokens = 8192;
  int64_t sequence = 256;
  int64_t micro_batch = 8;
  int64_t seed = 1;
  double target_loss = 0.0;
  int64_t threads = 0;
  int64_t checkpoint_every = 0;
  int64_t keep_checkpoints = 2;
  int64_t milestone_every = 0;
  int64_t log_every = 1;
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
  v("threads", c.threads, "CPU threads; 0 = all cores", free_on_resume(between(0, 1024)));
  v("checkpoint_every", c.checkpoint_every, "steps between checkpoints; 0 = only at the end",
    free_on_resume(not_negative()));
  v("keep_checkpoints", c.keep_checkpoints, "number of latest checkpoints to keep",
    free_on_resume(at_least(1)));
  v("milestone_every", c.milestone_every,
    "steps between checkpoints that are never deleted; 0 = none", free_on_resume(not_negative()));
  v("log_every", c.log_every, "steps between logged steps", free_on_resume(at_least(1)));
}

struct PrecisionConfig {
  std::string recipe = "auto";
  std::vector<std::string> override_;
  int64_t bf16_first_layers = 0;
  int64_t bf16_last_layers = -1;
  double bf16_tail = 0.0;
  std::string products = "decoded";
  bool operator==(const PrecisionConfig&) const = default;
};

template <typename V>
void visit(V& v, PrecisionConfig& c) {
  v("recipe", c.recipe, "auto = bf16 on a GPU and on a CPU with fast bf16 products, else fp32",
    free_on_resume(one_of({"auto", "fp32", "bf16", "fp8_tensor", "fp8_block", "mxfp8", "nvfp4",
                           "mxfp8_nmoe", "mxfp4_nmoe"})));
  v("override", c.override_,
    "formats of operands that differ from the recipe's, e.g. [experts.wgrad=bf16, weight=nvfp4]",
    free_on_resume(any()));
  v("bf16_first_layers", c.bf16_first_layers, "number of first blocks with all products in bf16",
    free_on_resume(not_negative()));
  v("bf16_last_layers", c.bf16_last_layers,
    "number of last blocks with all products in bf16; -1 = the recipe's: nvfp4 15% of the layers, "
    "others none",
    free_on_resume(at_least(-1)));
  v("bf16_tail", c.bf16_tail, "share of the steps, at the end, with all products in bf16",
    free_on_resume(between(0, 1)));
  v("products", c.products,
    "decoded = simulated in bf16, the same on every machine; native = in the operands' own formats "
    "on a GPU that has them, else simulated",
    free_on_resume(one_of({"decoded", "native"})));
}

struct CoreEvalConfig {
  std::string bundle;
  std::vector<std::string> tasks;
  int64_t every = 0;
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
  v("max_rows", c.max_rows, "most rows per task (the score is then not CORE); 0 = all",
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
  v("tokens", c.tokens, "most tokens to generate per prompt", free_on_resume(between(1, 1 << 20)));
  v("temperature", c.temperature, "0 = always the most likely token; 1 = the model's probabilities",
    free_on_resume(not_negative()));
  v("every", c.every, "steps between samples; 0 = at every validation",
    free_on_resume(not_negative()));
}

struct EvalConfig {
  int64_t every = 100;
  int64_t tokens = 65536;
  int64_t source_tokens = 0;
  std::optional<CoreEvalConfig> core = {};
  std::optional<SamplesConfig> samples = {};
};

template <typename V>
void visit(V& v, EvalConfig& c) {
  v("every", c.every, "steps between validations; the last step is always validated",
    free_on_resume(at_least(1)));
  v("tokens", c.tokens, "number of validation tokens, from the start of the shards", at_least(1));
  v("source_tokens", c.source_tokens,
    "validation tokens per source of a mixture; 0 = an equal share of eval.tokens",
    free_on_resume(not_negative()));
  v.section("core", c.core, "the CORE score during training and at the end of the run");
  v.section("samples", c.samples, "texts generated during training");
}

// The measures that collapse_stop may use: the normalised load measures.
std::vector<std::string> collapse_measures();

struct CollapseStopConfig {
  std::string measure = "max_load_norm";
  std::optional<double> at_least = {};
  std::optional<double> at_most = {};
  std::string layers = "any";
  int64_t logged_steps = 10;
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
    free_on_resume(one_of({"any", "all", "mean"})));
  v("for", c.logged_steps, "consecutive logged steps", free_on_resume(between(1, 1000)));
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
  v("probe_tokens", c.probe_tokens, "number of tokens in the fixed probe batch", at_least(1));
  v.section("collapse_stop", c.collapse_stop,
            "rule by which collapsed routers stop the run with exit code 3");
}

struct ContractConfig {
  std::string kind = "steps";
  double coefficient = 0.0;
  std::string reference = "";
  std::string derived_from = "";
  bool shared_in_total = true;
  double step_seconds = 0.0;
  int64_t horizon = 0;
  double fraction = 1.0;
  std::optional<std::vector<double>> landings = {};
};

template <typename V>
void visit(V& v, ContractConfig& c) {
  v("kind", c.kind,
    "what fixes the number of steps: run.steps (steps, active-width), or the coefficient",
    free_on_resume(one_of({"steps", "active-width", "activeDN", "totalDN", "flops", "seconds"})));
  v("coefficient", c.coefficient,
    "by kind: tokens per active or total parameter, FLOPs, seconds of training, active FFN width",
    free_on_resume(not_negative()));
  v("reference", c.reference,
    "configuration or run to derive the coefficient from (kind steps: run.steps)",
    free_on_resume(path()));
  v("derived_from", c.derived_from, "source of the coefficient; written by the program",
    free_on_resume(any()));
  v("shared_in_total", c.shared_in_total, "totalDN counts shared experts", free_on_resume(any()));
  v("step_seconds", c.step_seconds,
    "kind seconds: seconds per step; 0 = measured before the run begins",
    free_on_resume(not_negative()));
  v("horizon", c.horizon,
    "steps of the whole contract if run.steps is a fraction of it; written by the program",
    free_on_resume(not_negative()));
  v("fraction", c.fraction, "share of the contract's horizon to train",
    {.low = 0, .high = 1, .low_open = true, .on_resume = OnResume::kFree});
  v("landings", c.landings,
    "shares of the horizon with an evaluation and a checkpoint that is never deleted; absent = 2, "
    "5, 10, 20, 50, 100% under a contract, none with kind steps",
    {.low = 0, .high = 1, .low_open = true, .on_resume = OnResume::kFree});
}

struct Config {
  ModelConfig model;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DataConfig data;
  RunConfig run;
  PrecisionConfig precision;
  EvalConfig eval;
  TelemetryConfig telemetry;
  ContractConfig contract;
};

template <typename V>
void visit(V& v, Config& c) {
  v.section("model", c.model, "shape of the network");
  v.section("optimizer", c.optimizer, "AdamW and its groups");
  v.section("schedule", c.schedule, "learning rate over the steps");
  v.section("data", c.data, "shards and tokenizer");
  v.section("run", c.run, "length, batch, seed");
  v.section("precision", c.precision, "number formats of the matrix products");
  v.section("eval", c.eval, "validation");
  v.section("telemetry", c.telemetry, "measurements during training");
  v.section("contract", c.contract, "what the comparison holds fixed");
}

}  // namespace assay
