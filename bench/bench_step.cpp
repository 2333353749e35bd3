// bench_step: tokens/s of a whole optimizer step (forward, backward, norm, clip, AdamW, packing) on
// random tokens, the share of what products allow (measured on a CPU, of a GPU its datasheet's
// peak), and where the time goes. The shapes are those of bench/peers, or of a configuration. Under
// mpirun its ranks share the micro-batches of a step; bench/in_turn.py compares that with one
// process.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/median.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/json.h"
#include "bench/options.h"
#include "bench/step_training.h"
#include "cuda/context.h"
#include "cuda/predecessors_text.h"
#include "cuda/profile.h"
#include "data/json_text.h"
#include "engine/config/check.h"
#include "engine/config/yaml.h"
#include "machine/gpu_meter.h"
#include "machine/openmp_wait_policy.h"
#include "models/audit/audit.h"
#include "session/run_products.h"
#include "session/session.h"

namespace assay {
namespace {

struct Options {
  std::string config;
  std::string model = "dense";
  std::string recipe = "auto";
  bool recipe_given = false;
  std::string products;  // overrides precision.products; empty: as configured
  std::string device = "cpu";
  std::string tune;
  int64_t steps = 20, warmup = 3;
  int threads = 0;
  int64_t micro_batches = 0;  // 0: as configured, or 1
  int64_t parts = 0;
  int expert_ranks = 0;  // 0: as configured
  int64_t layers = 6, hidden = 256, heads = 8, ffn = 768, vocab = 8192, sequence = 256;
  int64_t batch = 0;
  int64_t experts = 4, top_k = 2, shared = 0, expert_ffn = 384;
  std::string router = "softmax";
  bool tie = false;
  bool json = false, profile = false, sampled = false;
};

Config config_of(const Options& o) {
  Config c;
  if (!o.config.empty()) {
    c = load_config(o.config);
    if (o.recipe_given) c.precision.recipe = o.recipe;
    if (o.batch > 0) c.run.micro_batch = o.batch;
    if (o.micro_batches > 0)
      c.run.batch_tokens = c.run.sequence * c.run.micro_batch * o.micro_batches;
    return c;
  }
  c.model.hidden = o.hidden;
  c.model.layers = o.layers;
  c.model.heads = o.heads;
  c.model.ffn = o.ffn;
  c.model.vocab_size = o.vocab;
  c.model.tie_embeddings = o.tie;
  if (o.model == "moe") {
    c.model.moe.emplace();
    c.model.moe->experts = o.experts;
    c.model.moe->top_k = o.top_k;
    c.model.moe->shared = o.shared;
    c.model.moe->expert_ffn = o.expert_ffn;
    RouterConfig& router = c.model.moe->router;
    router.score = *choice_named<RouterScore>(o.router);
    const bool balanced_by_loss = o.router == "softmax";
    router.aux = balanced_by_loss ? RouterAux::kSwitch : RouterAux::kNone;
    router.aux_alpha = balanced_by_loss ? 0.01 : 0;
    router.z_alpha = balanced_by_loss ? 0.001 : 0;
    router.bias_rate = balanced_by_loss ? 0 : 1e-4;
  }
  c.run.sequence = o.sequence;
  c.run.micro_batch = o.batch > 0 ? o.batch : 8;
  c.run.batch_tokens = o.sequence * c.run.micro_batch * std::max<int64_t>(1, o.micro_batches);
  c.precision.recipe = o.recipe;
  return c;
}

// The options of the model's shapes.
constexpr const char* kShapes[] = {"--model",  "--layers",     "--hidden",   "--heads",   "--ffn",
                                   "--vocab",  "--tie",        "--sequence", "--experts", "--top-k",
                                   "--shared", "--expert-ffn", "--router"};

// Refuses them together with --config, which sets the shapes.
void require_no_shapes(const BenchOptions& options) {
  for (const std::string name : kShapes) {
    if (!options.given(name)) continue;
    throw UserError(name + " is given with --config, which sets the shapes",
                    "leave " + name + " out, or set it in a copy of the configuration");
  }
}

// Refuses the experts' options without experts.
void require_experts(const BenchOptions& options, const std::string& model) {
  if (model == "moe") return;
  for (const std::string name : {"--experts", "--top-k", "--shared", "--expert-ffn", "--router"}) {
    if (!options.given(name)) continue;
    throw UserError(name + " is given, but --model is " + model + ", without experts",
                    "add --model moe, or leave " + name + " out");
  }
}

// Of the timed steps.
struct Timings {
  std::vector<double> seconds, sampled_seconds;  // ascending
  Profile profile;                               // of all of them
  double heat_s = 0;                             // of the steps before them
  std::vector<double> losses;                    // of all steps, the untimed ones first
  GpuReading gpu;                                // during them

  int64_t steps() const { return int64_t(seconds.size() + sampled_seconds.size()); }
  double mean_seconds() const {
    const double plain = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    return std::accumulate(sampled_seconds.begin(), sampled_seconds.end(), plain) / double(steps());
  }
};

// meter: null, or that of the GPU it runs on.
Timings time_steps(const Options& o, StepTraining& training, const GpuMeter* meter) {
  using Sampled = StepTraining::Sampled;
  Timings t;
  std::optional<GpuTrace> trace;
  t.profile = Profile(training.on().gpu);
  const int64_t turns = o.sampled ? 2 : 1;  // sampled steps alternate with plain ones
  for (int64_t i = 0; i < o.warmup + turns * o.steps; ++i) {
    const bool timed = i >= o.warmup;
    const Sampled sampled = i % turns == 1 ? Sampled::kYes : Sampled::kNo;
    if (meter && timed && !trace) trace.emplace(*meter);
    const auto start = std::chrono::steady_clock::now();
    // Also in the steps before, so that the timed ones replay recordings with its events.
    if (i == o.warmup) t.profile.clear();
    training.step(i, sampled, o.profile ? &t.profile : nullptr);
    const double took = seconds_since(start);
    t.losses.push_back(training.loss());
    if (!timed) t.heat_s += took;
    if (!timed) continue;
    (sampled == Sampled::kYes ? t.sampled_seconds : t.seconds).push_back(took);
  }
  if (trace) t.gpu = trace->end();
  std::sort(t.seconds.begin(), t.seconds.end());
  std::sort(t.sampled_seconds.begin(), t.sampled_seconds.end());
  return t;
}

// What both outputs say.
struct Result {
  const Options& options;
  const Session& session;
  const StepTraining& training;
  const Timings& timings;
  Audit counts;
  double tokens_per_s, gflops;
  double limit;  // GFLOP/s of products; 0: unknown

  std::string model() const { return options.config.empty() ? options.model : options.config; }
};

Result result_of(const Options& o, const Session& session, const StepTraining& training,
                 const Timings& timings) {
  const Audit counts = audit(session.config);
  const double tokens_per_s = double(training.batch_tokens()) / median(timings.seconds);
  return {.options = o,
          .session = session,
          .training = training,
          .timings = timings,
          .counts = counts,
          .tokens_per_s = tokens_per_s,
          .gflops = 1e-9 * double(counts.flops_per_token) * tokens_per_s,
          .limit = 1e-9 * double(session.ranks ? session.ranks->size() : 1) *
                   peak_flop_per_s(session.device, training.on(), session.recipe)};
}

// As configured, except that a CPU multiplies no format itself.
ProductsMode products_of(const Session& session) {
  return session.device.gpu ? session.config.precision.products : ProductsMode::kSimulated;
}

// Where the algorithms of the dense products are from.
nlohmann::json products_json(const Session& session, const gpu::ProductChoices& choices) {
  const auto& used = choices.used();
  nlohmann::json json;
  json["used"] = used.size();
  json["tuned"] = std::count_if(used.begin(), used.end(), [](const auto& u) {
    return u.choice.by == gpu::ChosenBy::kTuning;
  });
  json["tune_sha256"] = session.tuning ? session.tuning->sha256 : "";
  return json;
}

nlohmann::json profile_json(const Timings& t) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& e : t.profile.entries()) {
    nlohmann::json row;
    row["op"] = e.name;
    row["calls"] = double(e.calls) / double(t.steps());
    row["ms"] = 1e3 * e.seconds / double(t.steps());
    row["gflop_per_s"] = 1e-9 * e.cost.flops / e.seconds;
    row["gbyte_per_s"] = 1e-9 * e.cost.bytes / e.seconds;
    rows.push_back(row);
  }
  return rows;
}

void print_json(const Result& r) {
  const Options& o = r.options;
  const Timings& t = r.timings;
  const Config& config = r.session.config;
  const PrecisionConfig& precision = config.precision;
  nlohmann::json j;
  j["model"] = r.model();
  j["layers"] = config.model.layers;
  j["hidden"] = config.model.hidden;
  j["vocab"] = config.model.vocab_size;
  j["experts"] = config.model.moe ? config.model.moe->experts : 0;
  j["sequence"] = config.run.sequence;
  j["micro_batch"] = config.run.micro_batch;
  j["steps"] = o.steps;
  j["warmup"] = o.warmup;
  if (const gpu::Context* const gpu = r.training.on().gpu) {
    j["predecessors"] = gpu::names_of(gpu->predecessors);
    j["dense_products"] = products_json(r.session, *gpu->products);
  }
  j["recipe"] = precision.recipe;
  j["products"] = name_of(products_of(r.session));
  j["ranks"] = r.session.ranks ? r.session.ranks->size() : 1;
  j["parts"] = config.parallel.parts;
  j["expert_ranks"] = config.parallel.expert_ranks;
  j["tokens"] = r.training.batch_tokens();
  j["micro_batches"] = micro_batches_of(config);
  j["tokens_per_s"] = r.tokens_per_s;
  j["step_ms_p50"] = 1e3 * median(t.seconds);
  j["step_ms_min"] = 1e3 * t.seconds.front();
  if (o.sampled) j["sampled_step_ms_p50"] = 1e3 * median(t.sampled_seconds);
  j["gflop_per_s"] = r.gflops;
  j["matmul_limit_from"] = origin_of_peak(r.session.device);
  j["matmul_limit_gflop_per_s"] = r.limit > 0 ? nlohmann::json(r.limit) : nlohmann::json();
  j["share_of_matmul_limit"] = r.limit > 0 ? nlohmann::json(r.gflops / r.limit) : nlohmann::json();
  j["parameters_total"] = r.counts.total;
  j["parameters_active"] = r.counts.active;
  j["first_loss"] = t.losses.front();
  j["loss"] = t.losses.back();
  j["losses"] = t.losses;
  j["memory_bytes"] = r.training.memory_bytes();
  j["heat_s"] = t.heat_s;
  j.update(json_or_throw("{" + json_fields(t.gpu) + "}"));
  if (o.profile) j["profile"] = profile_json(t);
  const BenchHeader header{.program = "bench_step",
                           .device = r.session.device.name(),
                           .threads = r.training.on().threads};
  std::printf("%s\n", with_header(header, j.dump()).c_str());
}

// Times and shares of the mean step; with --sampled half of the steps are sampled ones.
void print_profile(const Timings& t) {
  auto entries = t.profile.entries();
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const double steps = double(t.steps()), step_ms = 1e3 * t.mean_seconds();
  std::printf("%-28s %8s %9s %7s %9s %8s\n", "op", "calls", "ms/step", "share", "GFLOP/s", "GB/s");
  double sum = 0;
  for (const auto& e : entries) {
    const double ms = 1e3 * e.seconds / steps;
    sum += ms;
    std::printf("%-28s %8.1f %9.2f %6.1f%% %9.0f %8.1f\n", e.name, double(e.calls) / steps, ms,
                100 * ms / step_ms, 1e-9 * e.cost.flops / e.seconds,
                1e-9 * e.cost.bytes / e.seconds);
  }
  std::printf("%-28s %8s %9.2f %6.1f%%\n", "(between ops)", "", step_ms - sum,
              100 * (step_ms - sum) / step_ms);
}

std::string share_text(const Result& r) {
  if (r.limit == 0) return "no datasheet's peak of this GPU is known";
  const double percent = 100 * r.gflops / r.limit;
  if (r.session.device.gpu)
    return strprintf("%.1f%% of the datasheet's %.0f GFLOP/s in bf16", percent, r.limit);
  const std::string origin = origin_of_peak(r.session.device);
  return strprintf("%.1f%% of %.0f GFLOP/s matmul limit%s", percent, r.limit,
                   origin == "measured" ? "" : (", given by " + origin).c_str());
}

void print_text(const Result& r) {
  const Timings& t = r.timings;
  const double p50 = median(t.seconds);
  const PrecisionConfig& precision = r.session.config.precision;
  std::printf(
      "step %s %s%s %s threads=%d P_total=%ld P_active=%ld | p50 %.1f ms (min %.1f) | %.0f "
      "tokens/s | %.0f GFLOP/s | %s | loss %.4f\n",
      r.model().c_str(), precision.recipe.c_str(),
      products_of(r.session) == ProductsMode::kNative ? " native" : "",
      r.session.device.name().c_str(), r.training.on().threads, long(r.counts.total),
      long(r.counts.active), 1e3 * p50, 1e3 * t.seconds.front(), r.tokens_per_s, r.gflops,
      share_text(r).c_str(), r.training.loss());
  if (t.gpu.sm_mhz && t.gpu.watts) {
    std::printf("SM clock %d MHz, %.0f W%s%s\n", *t.gpu.sm_mhz, *t.gpu.watts,
                t.gpu.slowed_by.value_or("").empty() ? "" : ", slowed by ",
                t.gpu.slowed_by.value_or("").c_str());
  }
  if (r.options.sampled) {
    const double sampled_p50 = median(t.sampled_seconds);
    std::printf("sampled steps, alternating with these: p50 %.1f ms (min %.1f), %.3f times\n",
                1e3 * sampled_p50, 1e3 * t.sampled_seconds.front(), sampled_p50 / p50);
  }
  if (r.options.profile) print_profile(t);
}

int measure(const Options& o, Session session) {
  if (!o.tune.empty()) use_tuning(session, read_tuning(o.tune));
  StepTraining training(session);
  std::optional<GpuMeter> meter;
  if (session.device.gpu) {
    meter.emplace(session.device.gpu->facts().bus);
    say_problem(*meter);
  }
  const Timings timings = time_steps(o, training, meter ? &*meter : nullptr);
  const Result result = result_of(o, session, training, timings);
  if (session.ranks && !session.ranks->first()) return 0;
  o.json ? print_json(result) : print_text(result);
  return 0;
}

// Before the configuration's own checks, whose hints name settings instead of options.
void require_parts(const Config& config) {
  const int64_t parts = config.parallel.parts, micros = micro_batches_of(config);
  if (micros % parts == 0) return;
  throw UserError(strprintf("%lld parts do not divide the %lld micro-batches of a step",
                            static_cast<long long>(parts), static_cast<long long>(micros)),
                  "choose another --micro-batches or --parts");
}

void require_native_products(const Options& o) {
  if (o.products != "native" || backend_of(o.device) == Backend::kGpu) return;
  throw UserError("--products native is given, but a CPU multiplies none of the formats itself",
                  "give --device cuda, or leave --products out: the products are decoded");
}

int run(const Options& o) {
  require_native_products(o);
  Config config = config_of(o);
  if (!o.products.empty()) config.precision.products = *choice_named<ProductsMode>(o.products);
  config.run.threads = o.threads;
  if (o.parts > 0) config.parallel.parts = o.parts;
  if (o.expert_ranks > 0) config.parallel.expert_ranks = o.expert_ranks;
  if (config.parallel.parts > 0) require_parts(config);
  validate(config);
  const std::unique_ptr<Ranks> ranks = Ranks::join();
  if (!ranks) {
    config.parallel.parts = std::max<int64_t>(1, config.parallel.parts);
    require_parts(config);
    return measure(o, Session(std::move(config), {.device = o.device}));
  }
  return ranks->run([&] {
    if (config.parallel.parts == 0) config.parallel.parts = ranks->size();
    require_parts(config);
    require_ranks(config, ranks->size());
    return measure(o, Session(std::move(config), {.device = o.device, .ranks = ranks.get()}));
  });
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_short_spinning(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_step",
      "Tokens per second of a whole optimizer step on random tokens, with the share of what "
      "products allow: on a CPU the fastest of Assay's own linear products, measured after the "
      "steps, not the hardware's peak; on a GPU the peak in bf16 by its datasheet. Needs a GPU "
      "only for --device cuda.");
  options.add("--config", "FILE", o.config,
              "a configuration: its model, precision, sequence, micro_batch and batch_tokens");
  options.add("--device", "{auto,cpu,cuda}", o.device,
              "where it runs (default: cpu); auto: the GPU if one is usable");
  options.add("--micro-batches", o.micro_batches,
              "micro-batches per step, of all ranks (default: 1, or as configured)");
  options.add("--parts", o.parts,
              "parts of a batch whose gradients are added one by one (default: as configured, or "
              "one a rank)");
  options.add("--expert-ranks", o.expert_ranks,
              "ranks that hold the routed experts together (default: as configured)");
  options.add("--tune", "FILE", o.tune,
              "file of `assay tune`: the algorithms of the GPU's dense products (default: "
              "cuBLASLt's first proposals)");
  options.add("--recipe", "TEXT", o.recipe,
              "overrides precision.recipe (default: as configured, or auto)");
  options.add("--products", "{auto,decoded,native}", o.products, "overrides precision.products");
  options.add("--steps", o.steps, "timed steps (default: 20)");
  options.add("--warmup", o.warmup, "untimed steps first (default: 3)", 0);
  options.add_threads(o.threads);
  options.add("--batch", o.batch, "sequences per micro-batch (default: 8, or as configured)");
  options.add("--profile", o.profile, "also print the time of each op (adds a little)");
  options.add("--sampled", o.sampled,
              "also time as many steps sampled for telemetry, alternating with the others");
  options.add("--json", o.json, "print one JSON object on stdout");
  options.section("The model, without --config");
  options.add("--model", "{dense,moe}", o.model, "default: dense");
  options.add("--layers", o.layers, "default: 6");
  options.add("--hidden", o.hidden, "default: 256");
  options.add("--heads", o.heads, "default: 8");
  options.add("--ffn", o.ffn, "default: 768");
  options.add("--vocab", o.vocab, "default: 8192");
  options.add("--tie", o.tie, "the head uses the embedding matrix");
  options.add("--sequence", o.sequence, "default: 256");
  options.add("--experts", o.experts, "default: 4");
  options.add("--top-k", o.top_k, "default: 2");
  options.add("--shared", o.shared, "shared experts (default: 0)", 0);
  options.add("--expert-ffn", o.expert_ffn, "default: 384");
  options.add("--router", "{softmax,sigmoid}", o.router,
              "softmax with aux and z losses (the default), or sigmoid with a bias");
  if (const auto status = options.parse(argc, argv)) return *status;
  o.recipe_given = options.given("--recipe");
  try {
    if (!o.config.empty()) {
      assay::require_no_shapes(options);
    } else {
      assay::require_experts(options, o.model);
    }
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
