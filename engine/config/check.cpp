#include "engine/config/check.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/check.h"
#include "base/file.h"
#include "comm/layout.h"
#include "data/utf8.h"
#include "engine/config/field_range.h"
#include "engine/config/fields.h"
#include "engine/config/schedule.h"
#include "engine/config/section_visitor.h"

namespace assay {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

// Sizes are at most 10^15 each, so products are formed in 128 bits.
__int128 product(int64_t a, int64_t b) {
  return static_cast<__int128>(a) * b;
}

// The numbers from 1 to `most` that fit, in a list for a hint: none above 65,536, as a step may
// have 10^9 micro-batches.
template <typename Fits>
std::string fitting_list(int64_t most, Fits fits) {
  std::string list;
  for (int64_t n = 1; n <= std::min<int64_t>(most, 65536); ++n) {
    if (fits(n)) list += (list.empty() ? "" : ", ") + text(n);
  }
  return list;
}

// "--set run.micro_batch=8": fewer sequences at once, so that `parts` divide the micro-batches of a
// step; "" if no run.micro_batch does that.
std::string fitting_micro_batch(const RunConfig& r, int64_t parts) {
  const int64_t sequences = r.batch_tokens / r.sequence;
  if (sequences % parts != 0) return "";
  return "--set run.micro_batch=" + text(std::gcd(r.micro_batch, sequences / parts));
}

void validate_attention(const ModelConfig& m) {
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    throw UserError(
        "model.heads = " + text(m.heads) + " does not divide model.hidden = " + text(m.hidden),
        "choose a divisor of " + text(m.hidden) + ", or give model.head_dim");
  }
  const int64_t width = m.resolved_head_dim();
  if (width != 32 && width != 64 && width != 128) {
    throw UserError(m.head_dim > 0
                        ? "model.head_dim = " + text(width) + " is not 32, 64 or 128"
                        : "model.hidden / model.heads = " + text(m.hidden) + " / " + text(m.heads) +
                              " = " + text(width) + " is not 32, 64 or 128",
                    "heads are 32, 64 or 128 wide: change model.heads, or give model.head_dim");
  }
  if (m.heads % m.resolved_kv_heads() != 0) {
    throw UserError(
        "model.kv_heads = " + text(m.kv_heads) + " does not divide model.heads = " + text(m.heads),
        "every key-value head serves the same number of query heads");
  }
}

void validate_moe(const ModelConfig& m) {
  const MoeConfig& moe = *m.moe;
  if (moe.top_k > moe.experts) {
    throw UserError("model.moe.top_k = " + text(moe.top_k) +
                        " is more than model.moe.experts = " + text(moe.experts),
                    "a token can choose each expert once");
  }
  if (moe.first_dense_layers > m.layers) {
    throw UserError("model.moe.first_dense_layers = " + text(moe.first_dense_layers) +
                        " is more than model.layers = " + text(m.layers),
                    "leave at least one block for the experts, or remove model.moe");
  }
  if (moe.router.bias_rate.automatic && moe.router.resolved_bias_rule() != BiasRule::kSign) {
    throw UserError(
        "model.moe.router.bias_rate = auto with bias_rule = proportional: the lead gives the step "
        "of the sign rule, and no step per excess load",
        "--set model.moe.router.bias_rule=sign, or a number as bias_rate");
  }
}

void validate_batch(const Config& c) {
  const RunConfig& r = c.run;
  const __int128 micro = product(r.sequence, r.micro_batch);
  if (micro > r.batch_tokens || r.batch_tokens % static_cast<int64_t>(micro) != 0) {
    throw UserError("run.batch_tokens = " + text(r.batch_tokens) +
                        " is not a multiple of run.sequence * run.micro_batch = " +
                        text(r.sequence) + " * " + text(r.micro_batch),
                    "a step is a whole number of micro-batches: change one of the three");
  }
  const int64_t micros = r.batch_tokens / static_cast<int64_t>(micro);
  const int64_t parts = c.parallel.batch_parts();
  if (micros % parts != 0) {
    const std::string smaller = fitting_micro_batch(r, parts);
    throw UserError(
        "parallel.parts = " + text(parts) + " does not divide the " + text(micros) +
            " micro-batches of a step (run.batch_tokens / run.sequence / run.micro_batch)",
        "parts are whole numbers of micro-batches: choose one of " +
            fitting_list(micros, [&](int64_t n) { return micros % n == 0; }) +
            (smaller.empty() ? "" : ", or " + smaller));
  }
  if (c.eval.tokens < r.sequence) {
    throw UserError(
        "eval.tokens = " + text(c.eval.tokens) + " is less than run.sequence = " + text(r.sequence),
        "validate at least one sequence");
  }
}

void validate_core(const Config& c) {
  const CoreEvalConfig& core = *c.eval.core;
  if (core.bundle.empty()) {
    throw UserError("eval.core has no bundle",
                    "eval: {core: {bundle: FOLDER}}; bash tools/get_core.sh fetches it");
  }
  if (core.max_tokens > c.run.sequence) {
    throw UserError("eval.core.max_tokens = " + text(core.max_tokens) +
                        " is more than run.sequence = " + text(c.run.sequence),
                    "a run has memory for run.sequence positions only; `assay eval --max-tokens` "
                    "can score its checkpoints with more");
  }
}

void validate_samples(const SamplesConfig& samples) {
  const char* hint =
      "eval: {samples: {prompts: [Once upon a time]}}, or file: FILE with one prompt per line";
  if (samples.prompts.empty() && samples.file.empty()) {
    throw UserError("eval.samples has neither prompts nor file", hint);
  }
  if (!samples.prompts.empty() && !samples.file.empty()) {
    throw UserError("eval.samples.prompts and eval.samples.file are both given", hint);
  }
}

void validate_optimizer(const Config& c) {
  if (c.optimizer.kind == OptimizerKind::kAdamW && c.optimizer.muon) {
    throw UserError("optimizer.muon is given, but optimizer.kind is adamw",
                    "choose optimizer.kind: muon, or remove the section optimizer.muon");
  }
  if (c.optimizer.kind == OptimizerKind::kMuon && c.optimizer.state == StateFormat::kBf16) {
    throw UserError("optimizer.kind is muon, but optimizer.state is bf16",
                    "Muon keeps masters and momentum in fp32: choose optimizer.state: fp32, or "
                    "optimizer.kind: adamw");
  }
  if (c.optimizer.state == StateFormat::kBf16 && c.precision.recipe == "fp32") {
    throw UserError("optimizer.state is bf16, but precision.recipe is fp32, without bf16 weights",
                    "choose precision.recipe: bf16; only a new run can take optimizer.state: fp32 "
                    "instead");
  }
  if (c.schedule.decay == DecayShape::kCosine && c.schedule.floor > c.optimizer.lr) {
    throw UserError(strprintf("schedule.floor = %g is above optimizer.lr = %g", c.schedule.floor,
                              c.optimizer.lr),
                    "the floor is what optimizer.lr ends at");
  }
}

void validate_collapse_stop(const Config& c) {
  const CollapseStopConfig& stop = *c.telemetry.collapse_stop;
  const char* hint =
      "e.g. collapse_stop: {measure: max_load_norm, at_least: 0.9, layers: any, for: 10}; "
      "collapse_stop: null turns it off";
  if (stop.at_least && stop.at_most) {
    throw UserError(strprintf("telemetry.collapse_stop has at_least = %g and at_most = %g",
                              *stop.at_least, *stop.at_most),
                    "a rule has one bound: remove the other one");
  }
  if (!stop.at_least && !stop.at_most) {
    throw UserError("telemetry.collapse_stop has no bound on " + stop.measure +
                        ": neither at_least nor at_most",
                    hint);
  }
  if (c.model.moe && c.model.moe->experts == c.model.moe->top_k) {
    throw UserError("telemetry.collapse_stop is set, but all " + text(c.model.moe->experts) +
                        " experts are in every token's choice (model.moe.top_k)",
                    "such a router cannot collapse: collapse_stop: null");
  }
}

// Steps and fraction may not both be given.
void validate_schedule_fractions(const ScheduleConfig& s) {
  const auto require_one = [](int64_t steps, const std::optional<double>& fraction,
                              const std::string& name) {
    if (steps == 0 || !fraction) return;
    throw UserError(
        strprintf("schedule.%s = %ld and schedule.%s_fraction = %g are both given", name.c_str(),
                  long(steps), name.c_str(), *fraction),
        "remove one: schedule." + name + ": 0, or schedule." + name + "_fraction: null");
  };
  require_one(s.warmup, s.warmup_fraction, "warmup");
  require_one(s.warmdown, s.warmdown_fraction, "warmdown");
  const double both = s.warmup_fraction.value_or(0) + s.warmdown_fraction.value_or(0);
  if (both > 1) {
    throw UserError(strprintf("schedule.warmup_fraction + schedule.warmdown_fraction = %g is more "
                              "than the whole run",
                              both),
                    "shorten one of them");
  }
}

// Hint: how to give the coefficient of a contract kind.
const char* coefficient_hint(ContractKind kind) {
  if (kind == ContractKind::kFlops) {
    return "give the training FLOPs, e.g. contract: {kind: flops, coefficient: 1e15}, or "
           "contract.reference: a configuration or a run";
  }
  if (kind == ContractKind::kSeconds) {
    return "give the seconds of training, e.g. contract: {kind: seconds, coefficient: 600}, or "
           "contract.reference: a run";
  }
  if (kind == ContractKind::kActiveWidth) {
    return "give the active FFN width, e.g. contract: {kind: active-width, coefficient: 3072}, or "
           "contract.reference: a configuration or a run";
  }
  return "give the tokens per parameter, e.g. contract: {kind: activeDN, coefficient: 20}, or "
         "contract.reference: a configuration or a run";
}

void validate_contract(const ContractConfig& c) {
  const bool steps = c.kind == ContractKind::kSteps;
  if (!steps && c.coefficient <= 0 && c.reference.empty()) {
    throw UserError(std::string("contract.kind is ") + name_of(c.kind) +
                        " but contract.coefficient is not given, and no contract.reference",
                    coefficient_hint(c.kind));
  }
  if (c.coefficient > 0 && !c.reference.empty()) {
    throw UserError(
        strprintf("contract.coefficient = %g and contract.reference = %s are both given",
                  c.coefficient, c.reference.c_str()),
        "remove one: contract.coefficient: 0, or contract.reference: \"\"");
  }
  if (c.horizon > 0 && !takes_run_steps(c.kind)) {
    throw UserError(strprintf("contract.horizon = %ld, but the contract %s has its own",
                              long(c.horizon), name_of(c.kind)),
                    "remove it; the program writes it for kinds steps and active-width");
  }
  for (const double f : c.landings.value_or(std::vector<double>())) {
    if (f > c.fraction) {
      throw UserError(strprintf("contract.landings has %g, but the run ends at contract.fraction = "
                                "%g of the horizon",
                                f, c.fraction),
                      "remove it, or train further");
    }
  }
}

// True if no contract sets run.steps later.
bool steps_are_given(const Config& c) {
  return c.contract.kind == ContractKind::kSteps && c.contract.reference.empty() &&
         c.contract.horizon == 0;
}

// What to do about a warm-up and a warm-down that are longer than the run. Those of the example
// keep their ratio.
std::string shorter_schedule_hint(const ScheduleConfig& config, const Schedule& s) {
  if (config.warmup_fraction || config.warmdown_fraction) return "shorten them, or train longer";
  const double share = 0.5 * double(s.steps) / (double(s.warmup) + double(s.warmdown));
  const auto shorter = [&](int64_t steps) { return text(int64_t(share * double(steps))); };
  return "shorten them, to half of the run for example (--set schedule.warmup=" +
         shorter(s.warmup) + " --set schedule.warmdown=" + shorter(s.warmdown) +
         "), or train longer";
}

}  // namespace

void validate_schedule(const Config& c) {
  const Schedule s = make_schedule(c);
  if (product(s.warmup, 1) + s.warmdown > s.steps) {
    throw UserError("schedule.warmup + schedule.warmdown = " + text(s.warmup) + " + " +
                        text(s.warmdown) + " is more than run.steps = " + text(s.steps),
                    shorter_schedule_hint(c.schedule, s));
  }
  if (product(s.steps, c.run.batch_tokens) > INT64_MAX) {
    throw UserError("run.steps * run.batch_tokens = " + text(s.steps) + " * " +
                        text(c.run.batch_tokens) + " tokens does not fit 63 bits",
                    "make one of them smaller");
  }
}

void validate(const Config& config) {
  validate_attention(config.model);
  if (config.model.moe) validate_moe(config.model);
  validate_batch(config);
  validate_optimizer(config);
  validate_schedule_fractions(config.schedule);
  validate_contract(config.contract);
  if (config.telemetry.collapse_stop) validate_collapse_stop(config);
  if (config.eval.core) validate_core(config);
  if (config.eval.samples) validate_samples(*config.eval.samples);
  if (steps_are_given(config)) validate_schedule(config);
  if (config.data.synth && config.data.synth->vocab_size > config.model.vocab_size) {
    throw UserError("data.synth.vocab_size = " + text(config.data.synth->vocab_size) +
                        " is more than model.vocab_size = " + text(config.model.vocab_size),
                    "the model needs a row for every token");
  }
}

namespace {

void validate_mixture(const DataConfig& d) {
  if (d.synth) {
    throw UserError("data.mixture and data.synth are both given",
                    "remove one: `data.mixture: null` or `data.synth: null`");
  }
  if (d.mixture->size() != d.train.size()) {
    throw UserError(strprintf("data.mixture has %zu weights, data.train has %zu entries",
                              d.mixture->size(), d.train.size()),
                    "give each entry one weight, e.g. data: {train: [web/*.bin, code/*.bin], "
                    "mixture: [0.7, 0.3]}");
  }
}

// What to do about missing files of the presets, by the folder that they are looked for in.
std::string how_to_get(const std::string& pattern) {
  if (pattern.find("fineweb10B/") != std::string::npos) {
    return "bash tools/get_fineweb.sh --steps N downloads the shards of a run of N steps, 200 MB "
           "for every 100 million tokens";
  }
  if (pattern.find("debian-corpus/") != std::string::npos) {
    return "bash tools/get_debian_text.sh; bash tools/text_corpus.sh data-cache/debian-text "
           "data-cache/debian-corpus (or your own text: docs/reproduce.md)";
  }
  if (pattern.find("super-text/") != std::string::npos) {
    return "bash tools/text_corpus.sh FILE data-cache/super-text makes it of any English text "
           "(that "
           "of the studies: docs/reproduce.md)";
  }
  return "check the path; paths in a configuration are relative to its file, those of --set to the "
         "folder in which the command runs";
}

}  // namespace

void require_utf8_paths(const Config& config) {
  for (const FieldRow& row : config_fields(config)) {
    if (!row.check.path || first_not_utf8(row.value) == row.value.size()) continue;
    if (row.path == "data.cache" && !config.data.synth) continue;  // nothing uses it
    throw UserError(row.path + " = " + row.value + " is not UTF-8: config.yaml could not name it",
                    row.path == "data.cache" ? "rename the folder, or give another as data.cache"
                                             : "rename the file or its folder");
  }
}

void validate_data(const Config& config) {
  require_utf8_paths(config);
  const DataConfig& d = config.data;
  if (d.synth && !d.train.empty()) {
    throw UserError("data.train and data.synth are both given", "remove one: `data.synth: null`");
  }
  if (!d.synth && d.train.empty()) {
    throw UserError(
        "data.train is not given",
        "give shards (data: {train: [...], val: [...]}; `assay data prepare` makes them), or "
        "data: {synth: {}}");
  }
  validate_evaluation_data(config);
  if (d.mixture) validate_mixture(d);
}

void validate_evaluation_data(const Config& config) {
  if (config.data.synth || !config.data.val.empty()) return;
  throw UserError("data.val is not given", "give validation shards, e.g. data: {val: [val.bin]}");
}

std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                      const std::string& field) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = paths_matching(pattern);
    if (found.empty()) {
      throw UserError(field + ": no file matches " + pattern, how_to_get(pattern));
    }
    for (const std::string& file : found) {
      if (std::filesystem::is_directory(file)) {
        const std::string split = field == "data.val" ? "val" : "train";
        throw UserError(field + ": " + file + " is a folder",
                        "name its files of this split, e.g. " + file + "/*_" + split + "_*.bin");
      }
      files.push_back(file);
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

namespace {

class RangeCheck : public SectionVisitor<RangeCheck> {
 public:
  template <typename T>
  void operator()(const char* name, T& field, const char* doc, const FieldCheck& check) const {
    const std::string wrong = out_of_range(field, check);
    if (wrong.empty()) return;
    throw UserError(path_of(name) + " " + wrong, std::string(doc) + ": " + check_text(check));
  }
};

}  // namespace

namespace {

// "start one of 1, 2, 4 ranks"
template <typename Fits>
std::string start_fitting(int64_t most, Fits fits) {
  const std::string fitting = fitting_list(most, fits);
  return fitting == "1" ? "start one rank" : "start one of " + fitting + " ranks";
}

// The parts of a new run that so many ranks can share; "" if these cannot share its batch at all.
std::string fitting_parts(const RunConfig& r, int64_t ranks) {
  const std::string parts = "--set parallel.parts=" + text(ranks);
  const int64_t micros = r.batch_tokens / r.sequence / r.micro_batch;
  if (micros % ranks == 0) return parts;
  const std::string smaller = fitting_micro_batch(r, ranks);
  return smaller.empty() ? "" : parts + " " + smaller;
}

}  // namespace

void require_ranks(const Config& c, int64_t ranks) {
  if (ranks == 1) return;
  const int64_t parts = c.parallel.parts;
  const int64_t micros = c.run.batch_tokens / c.run.sequence / c.run.micro_batch;
  if (parts == 0 && micros % ranks != 0) {
    const std::string smaller = fitting_micro_batch(c.run, ranks);
    throw UserError(text(ranks) + " ranks do not divide the " + text(micros) +
                        (micros == 1 ? " micro-batch" : " micro-batches") +
                        " of a step (run.batch_tokens / run.sequence / run.micro_batch)",
                    start_fitting(micros, [&](int64_t n) { return micros % n == 0; }) + ", or " +
                        (smaller.empty() ? "choose another run.batch_tokens" : smaller));
  }
  if (parts > 0 && !Layout::fits(parts, ranks)) {
    const std::string more = fitting_parts(c.run, ranks);
    throw UserError(text(ranks) + " ranks cannot share the " + text(parts) +
                        (parts == 1 ? " part" : " parts") +
                        " of a batch (parallel.parts): each takes the same power of two",
                    start_fitting(parts, [&](int64_t n) { return Layout::fits(parts, n); }) +
                        (more.empty() ? "" : "; a new run may have more parts: " + more));
  }
}

void require_expert_ranks(const Config& c, int64_t ranks) {
  const int64_t shared = c.parallel.expert_ranks;
  if (shared == 1) return;
  if (moe_blocks(c.model) == 0) {
    throw UserError("parallel.expert_ranks = " + text(shared) + ", but the model has no experts",
                    "--set parallel.expert_ranks=1");
  }
  const int64_t experts = c.model.moe->experts;
  if (ranks % shared != 0 || experts % shared != 0) {
    std::string fitting;
    for (int64_t n = 1; n <= std::min(ranks, experts); ++n) {
      if (ranks % n == 0 && experts % n == 0) fitting += (fitting.empty() ? "" : ", ") + text(n);
    }
    throw UserError("parallel.expert_ranks = " + text(shared) + " does not divide " +
                        (ranks % shared != 0 ? text(ranks) + (ranks == 1 ? " rank" : " ranks")
                                             : text(experts) + " experts"),
                    "it divides the ranks and the experts: choose one of " + fitting);
  }
  if (c.optimizer.kind == OptimizerKind::kMuon) {
    throw UserError("parallel.expert_ranks = " + text(shared) + " with optimizer.kind muon",
                    "Muon steps experts that every rank has: --set parallel.expert_ranks=1");
  }
  if (c.optimizer.state == StateFormat::kBf16 &&
      c.model.hidden * c.model.moe->expert_ffn % 8 != 0) {
    throw UserError("parallel.expert_ranks = " + text(shared) +
                        " with optimizer.state bf16 and experts of " +
                        text(c.model.hidden * c.model.moe->expert_ffn) + " elements a matrix",
                    "make model.hidden a multiple of 8, or --set parallel.expert_ranks=1");
  }
}

void validate_ranges(const Config& config) {
  Config copy = config;
  RangeCheck check;
  visit(check, copy);
}

}  // namespace assay
