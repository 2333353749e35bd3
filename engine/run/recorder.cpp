#include "engine/run/recorder.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>

#include "base/check.h"
#include "engine/telemetry/reader.h"
#include "ops/fake_quantise.h"

namespace assay {

namespace {

enum Scalar {
  kTrainLoss,
  kLr,
  kGradientNorm,
  kClipFactor,
  kNonFinite,
  kTokens,
  kTokensPerS,
  kTrainSeconds,
  kEta,
  kCpuJoules,
  kGpuJoules,
  kMfu,
  kHash,
  kPeakRss,
  kAux,
  kZ,
  kCvMean,
  kCvStd,
  kEntropyMean,
  kEntropyMin,
  kMaxLoadMean,
  kMaxLoadMax,
  kDeadSum,
  kExchangeRounds,
  kScalars,
  // They are followed by grad_ratio and update_ratio of each group, then by share and epochs of
  // each source of a mixture, then by sent_bytes of a rank.
};

size_t ratio_at(size_t group) {
  return kScalars + 2 * group;
}

size_t source_at(size_t source) {
  return ratio_at(kRatioRoles.size()) + 2 * source;
}

std::vector<std::string> scalar_names(const std::vector<std::string>& sources, bool ranks) {
  std::vector<std::string> names{"train_loss_nats",
                                 "lr",
                                 "gradient_norm",
                                 "clip_factor",
                                 "non_finite",
                                 "tokens",
                                 "tokens_per_s",
                                 "train_s",
                                 "eta_s",
                                 "cpu_joules",
                                 "gpu_joules",
                                 "mfu_share",
                                 "hash",
                                 "peak_rss_bytes",
                                 "router_aux",
                                 "router_z",
                                 "router_cv_mean_percent",
                                 "router_cv_std_percent",
                                 "router_entropy_mean_nats",
                                 "router_entropy_min_nats",
                                 "router_max_load_mean_share",
                                 "router_max_load_max_share",
                                 "router_dead_sum",
                                 "exchange_rounds_max"};
  CHECK(names.size() == kScalars, "%zu scalar names for %d scalars", names.size(), int(kScalars));
  for (const Role role : kRatioRoles) {
    names.push_back(std::string("grad_ratio/") + ratio_group_name(role));
    names.push_back(std::string("update_ratio/") + ratio_group_name(role));
  }
  for (const std::string& source : sources) {
    names.push_back("source_share/" + source);
    names.push_back("source_epochs/" + source);
  }
  if (ranks) names.push_back("sent_bytes");
  return names;
}

// Fills rows, counts and aggregates over the MoE layers, without allocating.
void fill_router(Exec on, StepRecord& record, Model& model, RouterTelemetry& routers,
                 int64_t experts) {
  routers.observe(on, model, record.step, record.router);
  const auto& states = model.router_layers();
  const double layers = double(states.size());
  auto& s = record.scalars;
  for (const Scalar sum : {kAux, kZ, kDeadSum}) s[sum] = 0;
  for (size_t l = 0; l < states.size(); ++l) {
    const View<uint32_t, 1> counts = record.layer_counts(int64_t(l), experts);
    for (int64_t e = 0; e < experts; ++e) counts[e] = static_cast<uint32_t>(states[l].counts[e]);
    s[kAux] += states[l].aux / layers;
    s[kZ] += states[l].z / layers;
    s[kDeadSum] += record.router[l].dead_for.value_or(std::nan(""));
  }
  int64_t rounds = 0;
  for (const RouterLayerState& state : states) rounds = std::max(rounds, state.exchange_rounds);
  s[kExchangeRounds] = rounds > 0 ? double(rounds) : std::nan("");
  const RouterAggregate over_layers = aggregate(record.router);
  s[kCvMean] = over_layers.cv_mean;
  s[kCvStd] = over_layers.cv_std;
  s[kEntropyMean] = over_layers.entropy_mean;
  s[kEntropyMin] = over_layers.entropy_min;
  s[kMaxLoadMean] = over_layers.max_load_mean;
  s[kMaxLoadMax] = over_layers.max_load_max;
}

bool is_weight(const QuantisedOperandState& state) {
  return state.operand.ends_with(".weight");
}

// Operands whose products ran in bf16 have no values and get no row.
void fill_precision(StepRecord& record, const Model& model) {
  const std::vector<QuantisedOperandState>& states = model.quantised_operands();
  for (size_t i = 0; i < states.size(); ++i) {
    const View<const double, 1> m = states[i].measures;
    if (!(m[kFakeValues] > 0)) continue;
    OperandLoss& loss = record.precision[i];
    loss = {.flushed = m[kFakeFlushed] / m[kFakeValues],
            .saturated = m[kFakeSaturated] / m[kFakeValues],
            .error = std::sqrt(m[kFakeErrors] / m[kFakeSquares]),
            .blocks = m[kFakeBlocks],
            .zero_blocks = m[kFakeZeroBlocks],
            .low_scales = m[kFakeLowScales],
            .high_scales = m[kFakeHighScales]};
    if (is_weight(states[i])) loss.flips = m[kFakeFlips] / m[kFakeValues];
    if (m[kFakeLargestScale] == 0) continue;  // every block is 0
    loss.scale_min = smallest_scale(m);
    loss.scale_max = largest_scale(m);
  }
}

}  // namespace

double peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) * 1024.0;
}

RunRecorder::RunRecorder(const RecorderConfig& config, Log& log)
    : config_(config),
      log_(log),
      telemetry_(config.telemetry_path, {.scalars = scalar_names(config.sources, config.ranks),
                                         .spans = {"step", "router_telemetry", "hash"},
                                         .layers = config.moe_layers,
                                         .experts = config.experts,
                                         .operands = config.operands}) {}

void RunRecorder::resume(int64_t steps_done, int64_t window, RouterTelemetry& routers) {
  telemetry_.truncate_after(steps_done, "from a checkpoint of step " + std::to_string(steps_done));
  if (config_.moe_layers.empty()) return;
  telemetry_.flush();
  const TelemetryReader reader(config_.telemetry_path);
  routers.guard().replay(reader);
  std::vector<StepValue> logged = reader.scalar("train_loss_nats");
  if (int64_t(logged.size()) > window) {
    routers.skip(int64_t(logged.size()) - window);
    logged.erase(logged.begin(), logged.end() - window);
  }
  for (const StepValue& at : logged) {
    std::vector<std::vector<uint32_t>> counts;
    for (const int64_t layer : config_.moe_layers) {
      counts.push_back(reader.expert_load(at.step, layer));
      if (int64_t(counts.back().size()) != config_.experts) return;  // not this model's rows
    }
    routers.replay(counts);
  }
}

void RunRecorder::step(Exec on, const StepStats& stats, const StepTimes& times, Model& model,
                       RouterTelemetry& routers) {
  const int64_t done = stats.step + 1;
  const double seconds = times.step_s;
  const double tokens_per_s = double(config_.batch_tokens) / std::max(seconds, 1e-9);
  StepRecord& record = telemetry_.begin_step(done);
  auto& s = record.scalars;
  s[kTrainLoss] = stats.loss;
  s[kLr] = stats.lr;
  s[kGradientNorm] = stats.gradient_norm;
  s[kClipFactor] = stats.clip;
  s[kNonFinite] = double(stats.non_finite);
  s[kTokens] = double(done * config_.batch_tokens);
  s[kTokensPerS] = tokens_per_s;
  s[kTrainSeconds] = times.train_s;
  s[kCpuJoules] = times.energy.cpu_joules;
  s[kGpuJoules] = times.energy.gpu_joules;
  s[kHash] = double(stats.hash);
  s[kPeakRss] = peak_rss_bytes();
  for (size_t group = 0; group < kRatioRoles.size(); ++group) {
    s[ratio_at(group)] = stats.ratios[group].grad;
    s[ratio_at(group) + 1] = stats.ratios[group].update;
  }
  for (size_t source = 0; source < stats.sources.size(); ++source) {
    s[source_at(source)] = stats.sources[source].share;
    s[source_at(source) + 1] = stats.sources[source].epochs;
  }
  if (config_.ranks) s[source_at(config_.sources.size())] = double(stats.sent_bytes);
  record.spans_ms[0] = 1e3 * seconds;
  record.spans_ms[2] = 1e3 * times.hash_s;
  record.ranks = times.ranks;

  StepLine line{.step = done,
                .steps = config_.steps,
                .loss = stats.loss,
                .lr = stats.lr,
                .grad_norm = stats.gradient_norm,
                .step_ms = 1e3 * seconds,
                .tokens_per_s = tokens_per_s,
                .seconds_left = eta_.seconds_left(config_.steps - done) + times.other_left_s,
                .hash = stats.hash};
  s[kEta] = line.seconds_left;
  if (config_.limit_flops_per_s > 0) {
    s[kMfu] = config_.flops_per_token * tokens_per_s / config_.limit_flops_per_s;
    line.mfu_percent = 100 * s[kMfu];
  }
  if (!config_.moe_layers.empty()) {
    const auto start = std::chrono::steady_clock::now();
    fill_router(on, record, model, routers, config_.experts);
    record.spans_ms[1] =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    line.load = double(config_.experts) * s[kMaxLoadMax];
    line.min_entropy = s[kEntropyMin];
    line.entropy_ceiling = std::log(double(config_.experts));
  }
  if (stats.sampled) fill_precision(record, model);
  telemetry_.commit();
  const bool shown = shown_++ % config_.print_every == 0 || done == config_.steps;
  log_.info(step_line(line), shown ? short_step_line(line) : "");
  if (log_.on_terminal()) {
    log_.set_bar(progress_bar(done, config_.steps, line.seconds_left, log_.terminal_columns()));
  }
}

void RunRecorder::times(int64_t steps_done, double train_s, const Energy& energy) {
  const std::vector<std::string>& names = telemetry_.layout().scalars;
  for (const auto& [scalar, value] :
       {std::pair(kTrainSeconds, train_s), std::pair(kCpuJoules, energy.cpu_joules),
        std::pair(kGpuJoules, energy.gpu_joules)}) {
    if (!std::isnan(value)) telemetry_.scalar(steps_done, names[scalar], value);
  }
}

void RunRecorder::evaluation(int64_t steps_done, const Evaluation& evaluation, double seconds) {
  std::string text;
  std::vector<Telemetry::EvalRow> rows;
  for (const EvalResult& r : evaluation.results) {
    rows.push_back({.task = r.task, .metric = r.metric, .value = r.value, .n = r.n});
    text += strprintf(" %s %s %.4f", r.task.c_str(), r.metric.c_str(), unsigned_nan(r.value));
  }
  telemetry_.evals(steps_done, rows);
  const std::string start = strprintf("eval %ld/%ld", long(steps_done), long(config_.steps));
  const std::string end = strprintf(" (%.1f s)", seconds);
  said_at_s_ = 0;
  if (evaluation.text.empty()) return log_.info(start + text + end);
  std::istringstream lines(evaluation.text);
  std::string line;
  std::getline(lines, line);
  log_.info(start + " " + line + end);
  while (std::getline(lines, line)) log_.info("  " + line);
}

void RunRecorder::evaluating(int64_t steps_done, const std::string& what, double share,
                             double seconds) {
  constexpr double kQuietSeconds = 10;
  const double left = share > 0 ? seconds * (1 - share) / share : std::nan("");
  const std::string text =
      strprintf("eval %ld/%ld %s %.0f%% eta %s", long(steps_done), long(config_.steps),
                what.c_str(), 100 * share, duration_text(left).c_str());
  if (log_.on_terminal()) return log_.set_bar(text.substr(0, size_t(log_.terminal_columns() - 1)));
  if (seconds < said_at_s_ + kQuietSeconds) return;
  said_at_s_ = seconds;
  log_.info(text);
}

void RunRecorder::no_evaluation(int64_t steps_done, const std::string& task,
                                const std::string& why) {
  said_at_s_ = 0;
  telemetry_.event(steps_done, "no_evaluation", task + ": " + why);
  log_.warn(
      strprintf("no evaluation %s at step %ld: %s", task.c_str(), long(steps_done), why.c_str()));
}

void RunRecorder::not_finite_evaluation(int64_t steps_done, const std::string& task,
                                        const std::string& why) {
  telemetry_.event(steps_done, "not_finite_evaluation", task + ": " + why);
  log_.warn(strprintf("evaluation %s at step %ld is not finite: %s%s", task.c_str(),
                      long(steps_done), why.c_str(),
                      steps_done < config_.steps ? "; training continues" : ""));
}

bool RunRecorder::has_evaluation(int64_t steps_done, const std::string& task) const {
  return TelemetryReader(config_.telemetry_path).has_eval(steps_done, task);
}

std::optional<double> RunRecorder::validation_loss(int64_t steps_done) const {
  for (const EvalValue& v : TelemetryReader(config_.telemetry_path).eval("val", "loss_nats")) {
    if (v.step == steps_done) return v.value;
  }
  return std::nullopt;
}

std::optional<StepValue> RunRecorder::lowest_validation_loss() const {
  std::optional<StepValue> lowest;
  for (const EvalValue& v : TelemetryReader(config_.telemetry_path).eval("val", "loss_nats")) {
    const bool lower = !lowest || v.value < lowest->value;
    if (v.step > 0 && !std::isnan(v.value) && lower) lowest = {.step = v.step, .value = v.value};
  }
  return lowest;
}

void RunRecorder::no_checkpoint(int64_t steps_done, const std::string& why) {
  telemetry_.event(steps_done, "no_checkpoint", why);
  log_.warn(strprintf("no checkpoint at step %ld: %s; training continues", long(steps_done),
                      why.c_str()));
}

void RunRecorder::checkpoint(int64_t steps_done, const std::string& folder, double seconds) {
  telemetry_.event(steps_done, "checkpoint", folder);
  log_.info(strprintf("checkpoint %s (%.1f s)", folder.c_str(), seconds));
}

void RunRecorder::event(int64_t steps_done, const std::string& kind, const std::string& detail) {
  telemetry_.event(steps_done, kind, detail);
}

void RunRecorder::event_once(int64_t steps_done, const std::string& kind,
                             const std::string& detail) {
  if (!telemetry_.has_event(kind, detail)) event(steps_done, kind, detail);
}

}  // namespace assay
