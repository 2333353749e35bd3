// bench_step: tokens/s of a whole optimizer step (forward, backward, norm, clip, AdamW, packing) on
// random tokens, the share of the measured matmul limit, and where the time goes. The shapes are
// those of bench/peers, or of a configuration.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>

#include "base/random.h"
#include "cuda/profile.h"
#include "cuda/transfer.h"
#include "engine/config/yaml.h"
#include "engine/optimizer.h"
#include "machine/openmp_wait_policy.h"
#include "models/audit/audit.h"
#include "models/decoder/decoder.h"
#include "session/session.h"

namespace assay {
namespace {

struct Options {
  std::string config;
  std::string model = "dense";
  std::string recipe = "auto";
  std::string products;  // overrides precision.products; empty: as configured
  std::string device = "cpu";
  int64_t steps = 20, warmup = 3;
  int threads = 0;
  int64_t micro_batches = 1;
  int64_t layers = 6, hidden = 256, heads = 8, ffn = 768, vocab = 8192, sequence = 256;
  int64_t batch = 0;
  int64_t experts = 4, top_k = 2, shared = 0, expert_ffn = 384;
  std::string router = "softmax";
  bool json = false, profile = false, sampled = false;
};

Config config_of(const Options& o) {
  Config c;
  if (!o.config.empty()) {
    c = load_config(o.config);
    if (o.recipe != "auto") c.precision.recipe = o.recipe;
    if (o.batch > 0) c.run.micro_batch = o.batch;
    c.run.batch_tokens = c.run.sequence * c.run.micro_batch * o.micro_batches;
    return c;
  }
  c.model.hidden = o.hidden;
  c.model.layers = o.layers;
  c.model.heads = o.heads;
  c.model.ffn = o.ffn;
  c.model.vocab_size = o.vocab;
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
  c.run.batch_tokens = o.sequence * c.run.micro_batch * o.micro_batches;
  c.precision.recipe = o.recipe;
  return c;
}

// Refuses shape options together with --config, which sets the shapes.
void require_no_shapes(const CLI::Option_group& shapes) {
  for (const CLI::Option* option : shapes.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    throw UserError(name + " is given with --config, which sets the shapes",
                    "leave " + name + " out, or set it in a copy of the configuration");
  }
}

void print_profile(const Profile& profile, int64_t steps, double step_ms) {
  auto entries = profile.entries();
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  std::printf("%-28s %8s %9s %7s %9s %8s\n", "op", "calls", "ms/step", "share", "GFLOP/s", "GB/s");
  double sum = 0;
  for (const auto& e : entries) {
    const double ms = 1e3 * e.seconds / double(steps);
    sum += ms;
    std::printf("%-28s %8.1f %9.2f %6.1f%% %9.0f %8.1f\n", e.name, double(e.calls) / double(steps),
                ms, 100 * ms / step_ms, 1e-9 * e.cost.flops / e.seconds,
                1e-9 * e.cost.bytes / e.seconds);
  }
  std::printf("%-28s %8s %9.2f %6.1f%%\n", "(between ops)", "", step_ms - sum,
              100 * (step_ms - sum) / step_ms);
}

nlohmann::json profile_rows(const Profile& profile, int64_t steps) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& e : profile.entries()) {
    nlohmann::json row;
    row["op"] = e.name;
    row["calls"] = double(e.calls) / double(steps);
    row["ms"] = 1e3 * e.seconds / double(steps);
    row["gflop_per_s"] = 1e-9 * e.cost.flops / e.seconds;
    row["gbyte_per_s"] = 1e-9 * e.cost.bytes / e.seconds;
    rows.push_back(row);
  }
  return rows;
}

int measure(const Options& o, const Session& session) {
  const Config& config = session.config;
  const SessionDevice& device = session.device;
  const int64_t sequence = config.run.sequence, micro_batch = config.run.micro_batch;
  const int64_t micro_tokens = sequence * micro_batch, tokens = micro_tokens * o.micro_batches;
  TrainingMemory memory(config, session.recipe, session.place());
  const std::unique_ptr<Model>& model = memory.model;
  Optimizer& optimizer = *memory.optimizer;
  MemoryPlan& plan = memory.plan;
  View<int32_t, 1> stream;
  plan.add(Section::kData, "tokens", stream, {tokens + 1});
  Exec on = session.exec();
  memory.allocate(config, session.recipe, on.gpu);
  memory.bind(on);
  model->initialise(on, 1);
  model->refresh_weights(on);
  RandomSequence random({7, stream_id("bench_step"), 0});
  for (int64_t i = 0; i <= tokens; ++i) {
    stream[i] = int32_t(random.below(uint32_t(config.model.vocab_size)));
  }

  Profile profile;
  std::vector<double> seconds, sampled_seconds;
  double first_loss = 0;  // of the untrained model
  using Sample = MicroScale::Sample;
  const int64_t turns = o.sampled ? 2 : 1;  // sampled steps alternate with plain ones
  for (int64_t i = 0; i < o.warmup + turns * o.steps; ++i) {
    on.profile = o.profile && i >= o.warmup ? &profile : nullptr;
    const Sample sample = i % turns == 1 ? Sample::kFormats : Sample::kNothing;
    const auto start = std::chrono::steady_clock::now();
    {
      const ProfileScope timed(on, "zero gradients");
      model->begin_step(on, {.loss = 1.0f / float(tokens),
                             .micro_share = 1.0f / float(o.micro_batches),
                             .first_micro = i * o.micro_batches,
                             .sample = sample});
    }
    for (int64_t m = 0; m < o.micro_batches; ++m) {
      model->forward_backward(on, {.token = stream.rows(m * micro_tokens, micro_tokens),
                                   .target = stream.rows(m * micro_tokens + 1, micro_tokens),
                                   .batch = micro_batch,
                                   .sequence = sequence});
    }
    optimizer.step(
        on, i, 1.0,
        sample == Sample::kFormats ? Optimizer::Sample::kRatios : Optimizer::Sample::kNothing);
    model->update_router_bias(on, 1.0f);
    model->read_back(on);
    optimizer.read_back(on);
    wait(on);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i == 0) first_loss = model->loss_sum() / double(tokens);
    if (i < o.warmup) continue;
    (sample == Sample::kFormats ? sampled_seconds : seconds).push_back(took.count());
  }
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / double(seconds.size());
  std::sort(seconds.begin(), seconds.end());
  std::sort(sampled_seconds.begin(), sampled_seconds.end());
  const double p50 = seconds[seconds.size() / 2];
  const double sampled_p50 = o.sampled ? sampled_seconds[sampled_seconds.size() / 2] : 0;
  const double tokens_per_s = double(tokens) / p50;
  const Audit counts = audit(config);
  const double gflops = 1e-9 * double(counts.flops_per_token) * tokens_per_s;
  const double limit = 1e-9 * peak_flop_per_s(device, on, session.recipe);
  const double loss = model->loss_sum() / double(tokens);
  const std::string name = o.config.empty() ? o.model : o.config;
  if (o.json) {
    nlohmann::json result;
    result["model"] = name;
    result["device"] = device.name();
    result["recipe"] = config.precision.recipe;
    result["products"] = name_of(config.precision.products);
    result["threads"] = on.threads;
    result["tokens"] = tokens;
    result["micro_batches"] = o.micro_batches;
    result["tokens_per_s"] = tokens_per_s;
    result["step_ms_p50"] = 1e3 * p50;
    result["step_ms_min"] = 1e3 * seconds.front();
    if (o.sampled) result["sampled_step_ms_p50"] = 1e3 * sampled_p50;
    result["gflop_per_s"] = gflops;
    result["matmul_limit_gflop_per_s"] = limit;
    result["share_of_matmul_limit"] = gflops / limit;
    result["parameters_total"] = counts.total;
    result["parameters_active"] = counts.active;
    result["first_loss"] = first_loss;
    result["loss"] = loss;
    result["memory_bytes"] = plan.bytes_on(on.gpu);
    if (o.profile) result["profile"] = profile_rows(profile, turns * o.steps);
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  std::printf(
      "step %s %s %s threads=%d P_total=%ld P_active=%ld | p50 %.1f ms (min %.1f) | %.0f tokens/s "
      "| "
      "%.0f GFLOP/s | %.1f%% of %.0f GFLOP/s matmul limit | loss %.4f\n",
      name.c_str(), config.precision.recipe.c_str(), device.name().c_str(), on.threads,
      long(counts.total), long(counts.active), 1e3 * p50, 1e3 * seconds.front(), tokens_per_s,
      gflops, 100 * gflops / limit, limit, loss);
  if (o.sampled) {
    std::printf("sampled steps, alternating with these: p50 %.1f ms (min %.1f), %.3f times\n",
                1e3 * sampled_p50, 1e3 * sampled_seconds.front(), sampled_p50 / p50);
  }
  if (o.profile) print_profile(profile, turns * o.steps, 1e3 * mean);
  return 0;
}

int run(const Options& o) {
  Config config = config_of(o);
  if (!o.products.empty()) config.precision.products = *choice_named<ProductsMode>(o.products);
  config.run.threads = o.threads;
  const Session session(std::move(config), {.device = o.device});
  return measure(o, session);
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_passive_waiting(argv);
  CLI::App app{"Speed of one optimizer step of a small decoder on random tokens."};
  assay::Options o;
  app.add_option("--config", o.config,
                 "a configuration file: its model, precision, sequence and micro_batch")
      ->check(CLI::ExistingFile);
  app.add_option("--device", o.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--micro-batches", o.micro_batches, "micro-batches per step")
      ->check(CLI::PositiveNumber);
  app.add_option("--recipe", o.recipe, "overrides precision.recipe");
  app.add_option("--products", o.products, "overrides precision.products: decoded, native")
      ->check(CLI::IsMember({"decoded", "native"}));
  app.add_option("--steps", o.steps, "timed steps");
  app.add_option("--warmup", o.warmup, "untimed steps first");
  app.add_option("--threads", o.threads, "CPU threads; 0 = all cores");
  app.add_option("--batch", o.batch, "sequences per micro-batch (default 8, or as configured)");
  CLI::Option_group& shapes = *app.add_option_group("shapes", "the model, without --config");
  shapes.add_option("--model", o.model, "dense or moe")->check(CLI::IsMember({"dense", "moe"}));
  shapes.add_option("--layers", o.layers);
  shapes.add_option("--hidden", o.hidden);
  shapes.add_option("--heads", o.heads);
  shapes.add_option("--ffn", o.ffn);
  shapes.add_option("--vocab", o.vocab);
  shapes.add_option("--sequence", o.sequence);
  shapes.add_option("--experts", o.experts);
  shapes.add_option("--top-k", o.top_k);
  shapes.add_option("--shared", o.shared);
  shapes.add_option("--expert-ffn", o.expert_ffn);
  shapes.add_option("--router", o.router, "softmax with aux and z losses, or sigmoid with a bias")
      ->check(CLI::IsMember({"softmax", "sigmoid"}));
  app.add_flag("--profile", o.profile, "time per op (adds a little)");
  app.add_flag("--sampled", o.sampled,
               "also time as many steps sampled for telemetry, alternating with the others");
  app.add_flag("--json", o.json, "one JSON object on stdout");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!o.config.empty()) assay::require_no_shapes(shapes);
    return assay::run(o);
  } catch (const assay::UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
