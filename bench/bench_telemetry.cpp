// bench_telemetry: what logging adds to the time of a step, part by part, and the size of
// telemetry.db. Steps with and without telemetry alternate in one process; the size is measured
// with synthetic loads.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/random.h"
#include "base/standard_output.h"
#include "bench/json.h"
#include "bench/options.h"
#include "engine/config/check.h"
#include "engine/optimizer.h"
#include "engine/run/checkpoint_files.h"
#include "engine/telemetry/router_telemetry.h"
#include "engine/telemetry/telemetry.h"
#include "machine/openmp_wait_policy.h"
#include "models/decoder/decoder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string recipe = "auto";
  int64_t steps = 40, warmup = 3, logged = 1000;
  int threads = 0;
  int64_t layers = 12, hidden = 64, heads = 2, vocab = 4096, sequence = 256, batch = 16;
  int64_t experts = 4096, top_k = 7, expert_ffn = 16, window = 100, probe_every = 10;
  int64_t load_tokens = 524288;  // tokens of a step with synthetic load vectors
  bool json = false;
};

Config config_of(const Options& o) {
  Config c;
  c.model.hidden = o.hidden;
  c.model.layers = o.layers;
  c.model.heads = o.heads;
  c.model.vocab_size = o.vocab;
  c.model.moe.emplace();
  c.model.moe->experts = o.experts;
  c.model.moe->top_k = o.top_k;
  c.model.moe->shared = 1;
  c.model.moe->expert_ffn = o.expert_ffn;
  c.model.moe->router.bias_rate = 1e-4;
  c.run.sequence = o.sequence;
  c.run.micro_batch = o.batch;
  c.run.batch_tokens = o.sequence * o.batch;
  c.telemetry.window = o.window;
  c.telemetry.probe_every = o.probe_every;
  return c;
}

int threads_of(const Options& o) {
  return o.threads > 0 ? o.threads : usable_cores();
}

TelemetryLayout layout_of(const Options& o) {
  TelemetryLayout layout;
  for (int i = 0; i < 20; ++i) layout.scalars.push_back("scalar_" + std::to_string(i));
  layout.spans = {"step"};
  for (int64_t l = 0; l < o.layers; ++l) layout.layers.push_back(l);
  layout.experts = o.experts;
  return layout;
}

double ms_of(const std::function<void()>& what) {
  const auto start = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double p50(const std::vector<double>& values) {
  return values.empty() ? 0 : median(values);
}

// Median milliseconds per step. Work done at every probe_every-th logged step only is divided by
// probe_every.
struct Costs {
  double step = 0, logged_step = 0;  // the whole step, without and with telemetry
  double margin = 0, loads = 0, probe = 0, ratios = 0, hand_over = 0, writer = 0, hash = 0;
  double sum() const { return margin + loads + probe + ratios + hand_over + writer; }
};

class StepBench {
 public:
  explicit StepBench(const Options& o)
      : o_(o), config_(config_of(o)), tokens_(o.sequence * o.batch) {
    model_ = make_decoder(config_.model, resolve_recipe(o.recipe),
                          {.micro_batch = o.batch, .sequence = o.sequence});
    optimizer_ = std::make_unique<Optimizer>(config_.optimizer, *model_, 1);
    on_.threads = threads_of(o);
    plan_.add(Section::kData, "tokens", stream_, {tokens_ + 1});
    model_->plan(plan_);
    optimizer_->plan(plan_);
    plan_.add(Section::kScratch, "workspace", on_.workspace, {model_->workspace_bytes()});
    plan_.allocate();
    model_->bind(on_);
    optimizer_->bind();
    model_->initialise(on_, 1);
    model_->refresh_weights(on_);
    RandomSequence random({7, stream_id("bench_telemetry"), 0});
    for (int64_t i = 0; i <= tokens_; ++i) stream_[i] = int32_t(random.below(uint32_t(o.vocab)));
  }

  Costs run(const std::string& folder) {
    const RouterProbe probe{.tokens = batch(1), .every = 1};
    RouterTelemetry with_probe(*model_, config_, probe);
    RouterTelemetry routers(*model_, config_, {.tokens = probe.tokens, .every = 1 << 30});
    Telemetry telemetry(folder + "/step.db", layout_of(o_));
    std::vector<double> step, logged, loads, probes, ratios, hand_over, hash;
    for (int64_t i = 0; i < o_.warmup; ++i) train();
    std::vector<RouterRow> rows(size_t(o_.layers));
    routers.observe(on_, *model_, 0, rows);  // first call: runs this observer's only probe
    for (int64_t i = 0; i < o_.steps; ++i) {
      updates_.clear();
      step.push_back(ms_of([&] { train(); }));
      const double trained = ms_of([&] { train(); });
      hash.push_back(ms_of([&] { sink_ += optimizer_->parameter_checksum(on_); }));
      StepRecord* record = nullptr;
      hand_over.push_back(ms_of([&] {
        record = &telemetry.begin_step(i + 1);
        std::fill(record->scalars.begin(), record->scalars.end(), 1.0);
        for (int64_t l = 0; l < o_.layers; ++l) {
          const View<uint32_t, 1> to = record->layer_counts(l, o_.experts);
          const RouterLayerState& from = model_->router_layers()[size_t(l)];
          for (int64_t e = 0; e < o_.experts; ++e) to[e] = uint32_t(from.counts[e]);
        }
      }));
      loads.push_back(ms_of([&] { routers.observe(on_, *model_, i + 1, record->router); }));
      hand_over.back() += ms_of([&] { telemetry.commit(); });
      train(Optimizer::Sample::kRatios);
      ratios.push_back(updates_[2] - (updates_[0] + updates_[1]) / 2 +
                       ms_of([&] { sink_ += uint64_t(optimizer_->ratios()[0].grad > 0); }));
      logged.push_back(trained + hash.back() + hand_over.back() + loads.back());
      if (i % o_.probe_every > 0) continue;
      probes.push_back(ms_of([&] { with_probe.observe(on_, *model_, i + 1, rows); }) -
                       loads.back());
    }
    telemetry.flush();
    const Costs c{.step = p50(step),
                  .logged_step = p50(logged),
                  .margin = p50(margins_),
                  .loads = p50(loads),
                  .probe = p50(probes) / double(o_.probe_every),
                  .ratios = p50(ratios) / double(o_.probe_every),
                  .hand_over = p50(hand_over),
                  .hash = p50(hash)};
    return c;
  }

 private:
  TokenBatch batch(int64_t sequences) {
    const int64_t n = sequences * o_.sequence;
    return {.token = stream_.rows(0, n),
            .target = stream_.rows(1, n),
            .batch = sequences,
            .sequence = o_.sequence};
  }
  void train(Optimizer::Sample sample = Optimizer::Sample::kNothing) {
    model_->begin_step(on_, {.loss = 1.0f / float(tokens_)});
    model_->forward_backward(on_, batch(o_.batch));
    updates_.push_back(ms_of([&] { optimizer_->step(on_, trained_++, 1.0, sample); }));
    margins_.push_back(ms_of([&] { model_->update_router_bias(on_, 1.0f); }));
    model_->read_back(on_);
    optimizer_->read_back(on_);
  }

  const Options& o_;
  Config config_;
  int64_t tokens_, trained_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  Exec on_;
  MemoryPlan plan_;
  View<int32_t, 1> stream_;
  uint64_t sink_ = 0;
  std::vector<double> margins_;
  std::vector<double> updates_;  // ms of the optimizer, one per train()
};

// Fills `counts` with the assignments per expert of one layer and step.
using Loads = std::function<void(View<uint32_t, 1> counts, RandomSequence& random)>;

// Draws counts around share * assignments, with normal noise of the sampling's standard deviation.
void draw(View<uint32_t, 1> counts, const std::vector<double>& share, double assignments,
          RandomSequence& random) {
  for (int64_t e = 0; e < counts.dim[0]; ++e) {
    const double mean = share[size_t(e)] * assignments;
    double sum = 0;  // twelve uniform draws: variance 1
    for (int i = 0; i < 12; ++i) sum += double(random.below(1u << 24)) / double(1u << 24);
    const double count = mean + std::sqrt(mean) * (sum - 6);
    counts[e] = uint32_t(std::max(0.0, std::round(count)));
  }
}

// Shares fall as rank^-power: 0 is even; 2.5 leaves most of 4096 experts without a token.
Loads falling(const Options& o, double power) {
  std::vector<double> share(size_t(o.experts));
  double sum = 0;
  for (size_t e = 0; e < share.size(); ++e) sum += share[e] = std::pow(double(e + 1), -power);
  for (double& s : share) s /= sum;
  const double assignments = double(o.load_tokens * o.top_k);
  return [share, assignments](View<uint32_t, 1> counts, RandomSequence& random) {
    draw(counts, share, assignments, random);
  };
}

// Unstructured loads: uniform counts up to four times the mean.
Loads any_count(const Options& o) {
  const auto limit = uint32_t(std::max<int64_t>(1, 4 * o.load_tokens * o.top_k / o.experts));
  return [limit](View<uint32_t, 1> counts, RandomSequence& random) {
    for (int64_t e = 0; e < counts.dim[0]; ++e) counts[e] = random.below(limit);
  };
}

// Loads are counts of 32 bits, and random ones are up to four times the mean.
void require_counts(const Options& o) {
  constexpr int64_t kMost = 1'000'000'000;
  if (o.load_tokens <= kMost / o.top_k) return;
  throw UserError(
      strprintf("--load-tokens %lld with --top-k %lld are more assignments than an "
                "expert's count holds",
                static_cast<long long>(o.load_tokens), static_cast<long long>(o.top_k)),
      strprintf("give --load-tokens of at most %lld", static_cast<long long>(kMost / o.top_k)));
}

struct Written {
  std::string loads;
  double megabytes = 0, ms_per_step = 0;
};

// Fills every measure from router_stats, so that each column costs what it costs in a run.
Written write_database(const Options& o, const std::string& folder, const std::string& name,
                       const Loads& loads) {
  const std::string path = folder + "/" + name + ".db";
  RandomSequence random({11, stream_id(name), 0});
  // Drawn in advance, outside the timed region.
  std::vector<uint32_t> pool(size_t(16 * o.layers * o.experts));
  for (int64_t i = 0; i < 16 * o.layers; ++i) {
    loads({pool.data() + i * o.experts, {o.experts}}, random);
  }
  std::vector<RouterStats> stats;
  for (int64_t i = 0; i < 16 * o.layers; ++i) {
    const uint32_t* from = pool.data() + i * o.experts;
    const std::vector<int64_t> wide(from, from + o.experts);
    stats.push_back(router_stats({wide.data(), {o.experts}}, o.top_k));
  }
  Written written{.loads = name};
  const double ms = ms_of([&] {
    Telemetry telemetry(path, layout_of(o));
    for (int64_t step = 1; step <= o.logged; ++step) {
      StepRecord& r = telemetry.begin_step(step);
      for (double& s : r.scalars) s = std::sqrt(double(random.below(1u << 30)));
      r.spans_ms[0] = double(random.below(1u << 20));
      for (int64_t l = 0; l < o.layers; ++l) {
        const int64_t from = int64_t(random.below(uint32_t(16 * o.layers)));
        std::memcpy(r.layer_counts(l, o.experts).data, pool.data() + from * o.experts,
                    size_t(o.experts) * sizeof(uint32_t));
        r.router[size_t(l)].step = stats[size_t(from)];
        r.router[size_t(l)].window = stats[size_t((from + 1) % (16 * o.layers))];
        r.router[size_t(l)].margin = r.router[size_t(l)].gate_entropy = 1 / double(from + 3);
      }
      telemetry.commit();
    }
  });
  written.ms_per_step = ms / double(o.logged);
  written.megabytes = 1e-6 * double(fs::file_size(path)) * 1000 / double(o.logged);
  return written;
}

void print(const Options& o, const Costs& c, const std::vector<Written>& sizes) {
  std::printf("E=%ld K=%ld M=%ld C=%ld F=%ld, %ld tokens per step, recipe %s: step p50 %.1f ms\n",
              long(o.experts), long(o.top_k), long(o.layers), long(o.hidden), long(o.expert_ffn),
              long(o.sequence * o.batch), recipe_name(resolve_recipe(o.recipe)), c.step);
  const auto line = [&](const char* name, double ms) {
    std::printf("%-44s %9.3f ms %7.3f%%\n", name, ms, 100 * ms / c.step);
  };
  line("margin, with the bias's own update", c.margin);
  line("measures of the step and of the window", c.loads);
  line("probe, share of every probe_every-th step", c.probe);
  line("optimizer's ratios, share of those steps", c.ratios);
  line("load vectors to the writer", c.hand_over);
  line("writer thread: zstd and SQLite", c.writer);
  line("sum", c.sum());
  line("not in the sum: hash of all parameters", c.hash);
  line("a logged step, without probe and ratios", c.logged_step);
  const std::string from =
      o.logged == 1000 ? "" : strprintf(" (extrapolated from %ld)", long(o.logged));
  for (const Written& w : sizes) {
    std::printf(
        "telemetry.db of 1000 logged steps%s, %-10s %7.1f MB, written at %.3f ms per step\n",
        from.c_str(), w.loads.c_str(), w.megabytes, w.ms_per_step);
  }
}

int run(const Options& o) {
  const Config config = config_of(o);
  validate_ranges(config);
  validate(config);
  require_counts(o);
  const std::string folder = fs::temp_directory_path() / strprintf("assay-bench-%d", int(getpid()));
  const TemporaryFolder removed_at_the_end(folder);
  Costs costs = StepBench(o).run(folder);
  std::vector<Written> sizes;
  sizes.push_back(write_database(o, folder, "even", falling(o, 0)));
  sizes.push_back(write_database(o, folder, "uneven", falling(o, 0.5)));
  sizes.push_back(write_database(o, folder, "collapsed", falling(o, 2.5)));
  sizes.push_back(write_database(o, folder, "random", any_count(o)));
  for (const Written& w : sizes) costs.writer = std::max(costs.writer, w.ms_per_step);
  if (!o.json) {
    print(o, costs, sizes);
    return 0;
  }
  nlohmann::ordered_json json;
  json["recipe"] = recipe_name(resolve_recipe(o.recipe));
  for (const auto& [name, value] : {std::pair("steps", o.steps),
                                    {"layers", o.layers},
                                    {"hidden", o.hidden},
                                    {"heads", o.heads},
                                    {"vocab", o.vocab},
                                    {"sequence", o.sequence},
                                    {"batch", o.batch},
                                    {"experts", o.experts},
                                    {"top_k", o.top_k},
                                    {"expert_ffn", o.expert_ffn},
                                    {"window", o.window},
                                    {"probe_every", o.probe_every},
                                    {"logged", o.logged},
                                    {"load_tokens", o.load_tokens}}) {
    json[name] = value;
  }
  json["step_ms"] = costs.step;
  json["logged_step_ms"] = costs.logged_step;
  json["margin_ms"] = costs.margin;
  json["measures_ms"] = costs.loads;
  json["probe_ms"] = costs.probe;
  json["ratios_ms"] = costs.ratios;
  json["hand_over_ms"] = costs.hand_over;
  json["writer_ms"] = costs.writer;
  json["hash_ms"] = costs.hash;
  json["share_of_step"] = costs.sum() / costs.step;
  for (const Written& w : sizes) json["megabytes_per_1000_steps"][w.loads] = w.megabytes;
  const BenchHeader header{.program = "bench_telemetry", .threads = threads_of(o)};
  std::printf("%s\n", with_header(header, json.dump()).c_str());
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_short_spinning(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_telemetry",
      "What telemetry of routers costs on the CPU: time per step, part by part, and the "
      "size of telemetry.db with synthetic loads. Needs no GPU.");
  options.add("--recipe", "{auto,bf16,fp32}", o.recipe, "number format (default: auto)");
  options.add("--steps", o.steps, "timed pairs of steps (default: 40)");
  options.add("--warmup", o.warmup, "untimed steps first (default: 3)", 0);
  options.add("--logged", o.logged, "synthetic steps written to telemetry.db (default: 1000)");
  options.add_threads(o.threads);
  options.add("--json", o.json, "print one JSON object on stdout");
  options.section("The model and its telemetry");
  options.add("--layers", o.layers, "default: 12");
  options.add("--hidden", o.hidden, "default: 64");
  options.add("--heads", o.heads, "default: 2");
  options.add("--vocab", o.vocab, "default: 4096");
  options.add("--sequence", o.sequence, "default: 256");
  options.add("--batch", o.batch, "sequences per step (default: 16)");
  options.add("--experts", o.experts, "default: 4096");
  options.add("--top-k", o.top_k, "default: 7");
  options.add("--expert-ffn", o.expert_ffn, "default: 16");
  options.add("--window", o.window, "telemetry.window (default: 100)");
  options.add("--probe-every", o.probe_every, "telemetry.probe_every (default: 10)");
  options.add("--load-tokens", o.load_tokens, "tokens of a synthetic step (default: 524288)");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
