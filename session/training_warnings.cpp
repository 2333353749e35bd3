#include "session/training_warnings.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "engine/telemetry/collapse_guard.h"
#include "engine/telemetry/router_stats.h"
#include "models/audit/contract.h"
#include "models/linear/precision.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

class Lines {
 public:
  explicit Lines(const IsGiven& is_given) : is_given_(is_given) {}

  void add(std::string line) { lines_.push_back(std::move(line)); }
  void add_unused(const std::string& field, std::optional<double> value, const std::string& why) {
    if (value) add(strprintf("%s = %g is not used: %s", field.c_str(), *value, why.c_str()));
  }
  // The same of a field that files hold for only some of the configurations which include them: if
  // it is given.
  void add_if_given(const std::string& field, std::string line) {
    if (is_given(field)) add(std::move(line));
  }
  void add_unused_if_given(const std::string& field, std::optional<double> value,
                           const std::string& why) {
    if (is_given(field)) add_unused(field, value, why);
  }

  std::vector<std::string> take() { return std::move(lines_); }

 private:
  bool is_given(const std::string& field) const { return is_given_ && is_given_(field); }

  const IsGiven& is_given_;
  std::vector<std::string> lines_;
};

// Nothing keeps a few experts from getting all tokens.
bool is_unbalanced(const MoeConfig& moe) {
  return !moe.router.bias_rate.on() && !has_working_aux(moe) && moe.experts > moe.top_k;
}

void add_routers(const MoeConfig& moe, Lines& lines) {
  const RouterConfig &router = moe.router, usual;
  const bool working_aux = has_working_aux(moe);
  if (router.aux == RouterAux::kGates && router.aux_alpha > 0 && !working_aux) {
    lines.add(
        "model.moe.router.aux = gates has no effect: model.moe.top_k is 1, and a token's only "
        "normalised gate is 1 whatever the router says (aux: switch acts on the scores)");
  }
  if (is_unbalanced(moe)) {
    lines.add(
        "the routers are not balanced: model.moe.router has bias_rate 0 and no auxiliary loss that "
        "acts; a few experts may get all tokens (router: {bias_rate: 0.001}, or {aux: switch, "
        "aux_alpha: 0.01})");
  }
  if (has_constant_gates(moe)) {
    const bool learns = working_aux || router.z_alpha > 0;
    lines.add(
        std::string("model.moe.top_k is 1 and the gates are normalised, so every gate is 1: the "
                    "routers learn ") +
        (learns ? "from their auxiliary losses alone, not from the loss" : "nothing") +
        " (router: {normalize_gates: false} multiplies by the expert's score)");
  }
  if (router.score == RouterScore::kSoftmax && router.route_scale != 1) {
    lines.add_unused("model.moe.router.route_scale", router.route_scale,
                     "it is a factor inside of the sigmoid, and score is softmax");
  }
  if (router.bias_steps && !router.bias_rate.automatic) {
    lines.add(strprintf(
        "model.moe.router.bias_steps = %g is not used: bias_rate is %g (bias_rate: auto uses it)",
        *router.bias_steps, router.bias_rate.number));
  }
  if (router.bias_rule && !router.bias_rate.on()) {
    lines.add("model.moe.router.bias_rule is not used: bias_rate is 0");
  }
  if (router.bias_follows_lr && !router.bias_rate.on()) {
    lines.add_if_given("model.moe.router.bias_follows_lr",
                       "model.moe.router.bias_follows_lr is not used: bias_rate is 0");
  }
  if (router.aux == RouterAux::kNone && router.aux_scope != usual.aux_scope) {
    lines.add("model.moe.router.aux_scope is not used: aux is none");
  }
  if (router.aux == RouterAux::kNone && router.aux_alpha != 0 &&
      router.aux_alpha != usual.aux_alpha) {
    lines.add_unused("model.moe.router.aux_alpha", router.aux_alpha, "aux is none");
  }
}

void add_optimizer(const Config& config, Lines& lines) {
  if (moe_blocks(config.model) == 0) {
    const char* dense = "the model has no experts";
    lines.add_unused("optimizer.router_lr", config.optimizer.router_lr, dense);
    lines.add_unused("optimizer.expert_lr", config.optimizer.expert_lr, dense);
    lines.add_unused_if_given("optimizer.expert_beta2", config.optimizer.expert_beta2, dense);
  } else if (config.optimizer.kind == OptimizerKind::kMuon) {
    lines.add_unused_if_given("optimizer.expert_beta2", config.optimizer.expert_beta2,
                              "the experts' matrices are Muon's, which has no second moment");
    if (config.optimizer.muon && config.optimizer.muon->lr) {
      lines.add_unused("optimizer.expert_lr", config.optimizer.expert_lr,
                       "the experts' matrices are Muon's, and optimizer.muon.lr is given");
    }
    if (is_unbalanced(*config.model.moe)) {
      lines.add(
          "optimizer.kind = muon beside routers that are not balanced: Muon goes on stepping an "
          "expert without tokens, at the length of its last steps, for some hundred steps "
          "(docs/numerics.md#muon)");
    }
  }
  if (config.optimizer.muon && config.optimizer.muon->weight_decay &&
      config.optimizer.weight_decay != OptimizerConfig{}.weight_decay) {
    lines.add_unused("optimizer.weight_decay", config.optimizer.weight_decay,
                     "what decays are Muon's matrices, and optimizer.muon.weight_decay is given");
  }
  const ScheduleConfig& schedule = config.schedule;
  const bool decays = schedule.warmdown > 0 || schedule.warmdown_fraction.value_or(0) > 0;
  if (schedule.decay == DecayShape::kLinear && schedule.floor > 0) {
    lines.add_unused_if_given(
        "schedule.floor", schedule.floor,
        decays ? "it is where a cosine ends; linear decay ends at optimizer.lr / warmdown "
                 "(schedule: {decay: cosine})"
               : "it is where a cosine ends, and the rate does not fall at all (schedule: "
                 "{decay: cosine})");
  }
  if (config.model.tie_embeddings && config.model.head_init != 1) {
    lines.add_unused("model.head_init", config.model.head_init,
                     "the head is the embedding (model.tie_embeddings)");
  }
}

// `auto` is bf16 or fp32.
void add_precision(const PrecisionConfig& precision, Lines& lines) {
  if (is_quantised_recipe(precision.recipe) || !precision.override_.empty()) return;
  const std::string why = "recipe " + precision.recipe + " quantises nothing";
  for (const auto& [field, value] :
       {std::pair("precision.bf16_tail", precision.bf16_tail),
        std::pair("precision.bf16_first_layers", double(precision.bf16_first_layers)),
        std::pair("precision.bf16_last_layers", double(precision.bf16_last_layers))}) {
    if (value > 0) lines.add_unused(field, value, why);
  }
}

void add_contract(const ContractConfig& contract, Lines& lines) {
  const std::string kind = std::string("contract.kind is ") + name_of(contract.kind);
  if (contract.kind != ContractKind::kSeconds && contract.step_seconds > 0) {
    lines.add_unused("contract.step_seconds", contract.step_seconds, kind + ", not seconds");
  }
  if (contract.kind != ContractKind::kTotalDN && !contract.shared_in_total) {
    lines.add("contract.shared_in_total = false is not used: " + kind + ", not totalDN");
  }
  if (contract.kind == ContractKind::kSteps && contract.coefficient > 0) {
    lines.add_unused_if_given("contract.coefficient", contract.coefficient,
                              "contract.kind is steps, which takes run.steps");
  }
}

// The most steps that are logged from step `first` to step `last`: by run.log_every, and where they
// are validated or land.
int64_t most_logged(const Config& config, int64_t first, int64_t last) {
  const auto multiples = [&](__int128 of) { return int64_t(last / of - (first - 1) / of); };
  const __int128 both = __int128(config.run.log_every) /
                        std::gcd(config.run.log_every, config.eval.every) * config.eval.every;
  const auto landings = int64_t(config.contract.landings.value_or(std::vector<double>()).size());
  return multiples(config.run.log_every) + multiples(config.eval.every) - multiples(both) +
         landings;
}

// A rule that asks for more logged steps than the run has. None stops the last one.
void add_collapse_stop(const Config& config, Lines& lines) {
  const auto& stop = config.telemetry.collapse_stop;
  if (!stop || !config.model.moe || !horizon_is_known(config)) return;
  const int64_t first = std::max<int64_t>(1, first_counted_step(*stop, config.run.steps));
  const int64_t logged = most_logged(config, first, config.run.steps - 1);
  if (stop->logged_steps <= logged) return;
  lines.add(strprintf(
      "telemetry.collapse_stop can never stop this run: it needs %ld logged steps in a row (for), "
      "and the run logs at most %ld between its `from` and its last step (%ld steps, run.log_every "
      "%ld)",
      long(stop->logged_steps), long(logged), long(config.run.steps), long(config.run.log_every)));
}

// What even routers show of a measure over so many assignments. The name is without "window_".
double even_value(std::string_view measure, const MoeConfig& moe, double assignments) {
  const double experts = double(moe.experts), top_k = double(moe.top_k);
  const UniformRouting uniform = uniform_routing(moe.experts, moe.top_k, assignments);
  if (measure == "dead_for_norm") return uniform.dead_share;
  if (measure == "active_norm") return 1 - uniform.dead_share;
  if (measure == "entropy_norm") return uniform.entropy_norm;
  if (measure == "e_eff_norm") return std::exp((uniform.entropy_norm - 1) * std::log(experts));
  if (measure == "gini") return uniform.gini;
  if (measure == "cv_norm") return std::sqrt(top_k / assignments);
  if (measure == "participation_norm") return 1 / (1 + (experts - top_k) / assignments);
  CHECK(measure == "max_load_norm", "no measure %s", std::string(measure).c_str());
  return uniform_max_load_norm(moe.experts, moe.top_k, assignments);
}

// How many logged steps the window has at the first one that the rule counts: it grows to W.
int64_t first_window(const Config& config, const CollapseStopConfig& stop) {
  if (stop.from.value_or(0) == 0) return 1;
  if (!horizon_is_known(config)) return config.telemetry.window;
  const int64_t first = first_counted_step(stop, config.run.steps);
  return std::min(config.telemetry.window, most_logged(config, 1, first - 1) + 1);
}

// A rule that even routing meets too, since the counts it judges are small, or even loads are
// beyond its bound.
void add_forced_stop(const Config& config, Lines& lines) {
  const auto& stop = config.telemetry.collapse_stop;
  if (!stop || moe_blocks(config.model) == 0) return;
  const MoeConfig& moe = *config.model.moe;
  std::string_view measure = stop->measure;
  const bool grows = measure.starts_with("window_");
  if (grows) measure.remove_prefix(std::string_view("window_").size());
  const bool over_window = grows || measure == "dead_for_norm";
  const auto assignments = [&](int64_t steps) {
    return double(config.run.batch_tokens) * double(moe.top_k) * double(steps);
  };
  const auto even = [&](int64_t steps) { return even_value(measure, moe, assignments(steps)); };
  const auto forced = [&](int64_t steps) {
    return stop->at_least ? even(steps) >= *stop->at_least
                          : even(steps) <= stop->at_most.value_or(-1);
  };
  const int64_t full = over_window ? config.telemetry.window : 1;
  int64_t steps = full;
  std::string over = over_window ? "the window" : "a step";
  if (!forced(full)) {
    // The more steps the window has, the more even it is: only the rule's first ones can hold.
    const int64_t first = grows ? first_window(config, *stop) : full;
    steps = first + std::min(full - first, stop->logged_steps - 1);
    if (!forced(first) || !forced(steps)) return;
    over += steps == 1 ? " of the first logged step"
                       : strprintf(" of the first %ld logged steps", long(steps));
  }
  const double each = assignments(steps) / double(moe.experts);
  lines.add(strprintf(
      "telemetry.collapse_stop holds however even the routers are: %s gives each expert "
      "%s assignments, and sampling alone then makes %s %.3g (its bound: %g)",
      over.c_str(), strprintf(each < 10 ? "%.2g" : "%.0f", each).c_str(), stop->measure.c_str(),
      even(steps), stop->at_least ? *stop->at_least : *stop->at_most));
}

void add_threads(int64_t threads, const ProcessCores& on, Lines& lines) {
  if (threads <= on.cores) return;
  const char* s = on.cores == 1 ? "" : "s";
  const bool alone = on.processes == 1;
  lines.add(strprintf("run.threads = %ld %s %ld core%s%s: this is slower than %ld thread%s",
                      long(threads), alone ? "on" : "and", long(on.cores), s,
                      alone ? "" : " for each process", long(on.cores), s));
}

// Counts that are added over a step begin again with each of its parts.
void add_aux_scope(const RouterConfig& router, bool works, int64_t parts, Lines& lines) {
  if (!works || router.aux_scope != AuxScope::kStep || parts <= 1) return;
  lines.add(strprintf(
      "model.moe.router.aux_scope = step counts the part of a step so far, and parallel.parts = "
      "%ld: the auxiliary loss is of a part's assignments, on any number of ranks",
      long(parts)));
}

}  // namespace

std::vector<std::string> training_warnings(const Config& config, const IsGiven& is_given,
                                           const ProcessCores& on) {
  Lines lines(is_given);
  const auto& moe = config.model.moe;
  if (moe && moe_blocks(config.model) == 0) {
    lines.add(strprintf(
        "model.moe.first_dense_layers = %ld of %ld layers: no block has experts, this is a dense "
        "model",
        long(moe->first_dense_layers), long(config.model.layers)));
  } else if (moe) {
    add_routers(*moe, lines);
    add_aux_scope(moe->router, has_working_aux(*moe), config.parallel.batch_parts(), lines);
  }
  add_optimizer(config, lines);
  add_contract(config.contract, lines);
  add_precision(config.precision, lines);
  add_collapse_stop(config, lines);
  add_forced_stop(config, lines);
  if (config.eval.source_tokens > 0 && !config.data.mixture) {
    lines.add(strprintf("eval.source_tokens = %ld is not used: there is no data.mixture",
                        long(config.eval.source_tokens)));
  }
  for (const auto& [name, given] : {std::pair("data.val", !config.data.val.empty()),
                                    std::pair("data.tokenizer", !config.data.tokenizer.empty())}) {
    if (config.data.synth && given) {
      lines.add(std::string(name) + " is not used: data.synth has its own");
    }
  }
  add_threads(config.run.threads, on, lines);
  return lines.take();
}

std::string too_few_for_a_verdict(const Config& config) {
  if (moe_blocks(config.model) == 0 || !horizon_is_known(config)) return "";
  const int64_t logged = most_logged(config, 1, config.run.steps - 1) + 1;
  if (logged >= config.telemetry.window) return "";
  return strprintf(
      "the routers will be too early to judge: a verdict needs telemetry.window = %ld logged "
      "steps, and the run logs at most %ld (--set telemetry.window=%ld; not once it has begun)",
      long(config.telemetry.window), long(logged), long(logged));
}

}  // namespace assay
