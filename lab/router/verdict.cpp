#include "lab/router/verdict.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/run/run.h"
#include "lab/router/analysis.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

constexpr double kBiasClamp = 16;    // engine: a bias stays within +-16
constexpr double kEarlyShare = 0.1;  // of the planned steps
constexpr double kHardGates = 0.25;  // gate_entropy / ln K
constexpr double kMoving = 3;        // turnover / its floor
constexpr double kMovingWay = 0.5;   // or of the way from its floor to 1, if that is less
// As --set takes them.
constexpr const char* kRouter = "model.moe.router.";
const std::string kAux = std::string(kRouter) + "aux";
// Within which a bias should change a choice.
constexpr double kSwapSteps = RouterConfig::kUsualBiasSteps;

struct Facts {
  RouterHealth health;
  const RouterLayer* worst = nullptr;
};

Facts facts_of(const RouterAnalysis& a) {
  std::vector<LayerHealth> layers;
  for (const RouterLayer& l : a.layers) {
    layers.push_back({.layer = l.layer,
                      .max_load_norm = l.max_load_norm,
                      .active_norm = l.active_norm,
                      .cv_norm = l.cv_norm,
                      .entropy_norm = l.entropy_norm,
                      .saturated_at = l.saturated_at,
                      .steps = l.steps,
                      .assignments = l.assignments});
  }
  Facts f{.health = health_of(layers, a.experts, a.top_k)};
  f.health.logged = a.logged;
  f.health.window = a.window;
  f.health.stopped_by_guard = a.end == run_end_name(RunEnd::kCollapseStop);
  for (const RouterLayer& l : a.layers) {
    if (l.layer == f.health.worst_layer) f.worst = &l;
  }
  return f;
}

std::string numbers_of(const RouterAnalysis& a, const Facts& f) {
  const int64_t steps = std::min(a.window, a.logged);
  std::string text = strprintf(
      "over the last %s: largest load %.3f of its ceiling 1/K (layer %ld), %.1f%% of "
      "the experts without an assignment, %zu of %zu layers saturated",
      steps == 1 ? "logged step" : strprintf("%ld logged steps", long(steps)).c_str(),
      f.health.worst_max_load_norm, long(f.health.worst_layer), 100 * f.health.dead_share,
      f.health.saturated.size(), a.layers.size());
  if (!f.worst->entropy_norm) return text;  // E = 1
  text += strprintf(", smallest entropy %.3f of ln E", f.health.min_entropy_norm);
  return f.health.worst_steps ? text + "; " + f.health.steps_text() : text;
}

// "38.0% of the assignments move to other experts between logged steps, sampling alone gives 20%".
std::string turnover_text(const RouterAnalysis& a, const RouterLayer& l) {
  if (!l.turnover) return "no step was logged before this one to compare the loads with";
  return strprintf(
      "%.1f%% of the assignments move to other experts between logged steps, sampling alone gives "
      "%.1f%%",
      100 * *l.turnover, 100 * a.turnover_floor);
}

// What is known of a layer that moves more assignments than balance needs. shown: its rate. Between
// logged steps that are not neighbours scores that drift move as many.
RouterAdvice overshoots(const RouterAnalysis& a, const RouterConfig& router, const RouterLayer& l,
                        const std::string& measured, const std::string& shown) {
  std::string slower =
      router.bias_rate.automatic
          ? strprintf("more %sbias_steps than %g", kRouter, router.resolved_bias_steps())
          : strprintf("a smaller %sbias_rate than %s", kRouter, shown.c_str());
  if (!router.bias_follows_lr) slower += strprintf(", or --set %sbias_follows_lr=true", kRouter);
  const std::string because = measured + "; " + turnover_text(a, l);
  if (a.step_gap <= 1) return {"bias_overshoots", because, slower};
  return {"turns_unclear",
          because + strprintf("; logged steps are usually %ld steps apart, over which a bias that "
                              "overshoots and scores that drift look alike",
                              long(a.step_gap)),
          "--set run.log_every=1 tells them apart; of a bias that overshoots: " + slower +
              "; of scores that drift: a smaller optimizer.router_lr"};
}

// Whether more assignments move than sampling and uneven loads explain.
bool moves_much(const std::optional<double>& turnover, double floor) {
  return turnover && floor > 0 &&
         *turnover > std::min(kMoving * floor, floor + kMovingWay * (1 - floor));
}

void advise_on_bias(const RouterAnalysis& a, const RouterConfig& router, const Facts& f,
                    std::vector<RouterAdvice>& advice) {
  if (!router.bias_rate.on() || !f.worst->bias_range || !f.worst->margin) return;
  const double travel = *f.worst->bias_range, margin = *f.worst->margin;
  std::string measured = strprintf(
      "layer %ld: the biases differ by up to %.3g; the scores of the last chosen and the first "
      "unchosen expert of a token differ by %.3g on average",
      long(f.worst->layer), travel, margin);
  const double lead = f.worst->lead.value_or(0);
  const bool automatic = router.bias_rate.automatic;
  // A step of the proportional rule has no fixed size, so no number of steps follows from its rate.
  const bool by_sign = router.resolved_bias_rule() == BiasRule::kSign;
  const double rate =
      automatic ? lead / (2 * router.resolved_bias_steps()) : router.bias_rate.number;
  const auto to_make_up = [&](double difference) {  // within kSwapSteps
    return automatic
               ? strprintf("--set model.moe.router.bias_steps=%g", kSwapSteps)
               : strprintf("--set model.moe.router.bias_rate=%.1g", difference / (2 * kSwapSteps));
  };
  const bool known = rate > 0;  // not without the lead from which auto takes it
  const std::string shown = !automatic ? strprintf("%g", rate)
                            : known    ? strprintf("auto (now %.2g)", rate)
                                       : "auto";
  const std::string at_rate =
      shown + (router.bias_follows_lr ? " (at the peak learning rate)" : "");
  if (lead > 0) measured += strprintf(", the first chosen and the first unchosen by %.3g", lead);
  if (travel >= 1.8 * kBiasClamp) {
    advice.push_back({"bias_at_clamp", measured + strprintf("; their limit is +-%g", kBiasClamp),
                      "the biases are at their limit: add " + kAux +
                          ", which changes the scores themselves, or lower optimizer.router_lr"});
  } else if (by_sign && known && travel < margin && margin > 2 * kSwapSteps * rate) {
    const double swap = margin / (2 * rate);
    advice.push_back(
        {"bias_too_slow",
         measured + strprintf("; at bias_rate %s two experts change places after about %.0f steps, "
                              "the run had %ld",
                              at_rate.c_str(), swap, long(a.last_step)),
         to_make_up(margin) + ", which changes choices within a hundred steps; or add " + kAux +
             ", which acts at once; compare the validation losses, since balance competes with "
             "them"});
  } else if (moves_much(f.worst->turnover, a.turnover_floor)) {
    advice.push_back(overshoots(a, router, *f.worst, measured, shown));
  } else if (by_sign && known && travel < lead && lead > 2 * kSwapSteps * rate) {
    advice.push_back(
        {"bias_behind_lead",
         measured + strprintf("; the bias changes a token's last choices, and at bias_rate %s "
                              "its first one after about %.0f steps, the run had %ld",
                              at_rate.c_str(), lead / (2 * rate), long(a.last_step)),
         to_make_up(lead) + ", which reaches the busiest experts within a hundred steps; or add " +
             kAux +
             ", which acts on the scores themselves; compare the validation losses, since balance "
             "competes with them"});
  } else {
    advice.push_back(
        {"bias_too_weak",
         measured + strprintf("; after %ld steps at bias_rate %s the loads are still uneven: the "
                              "scores of the busiest experts are far above the last chosen one",
                              long(a.last_step), at_rate.c_str()),
         (automatic ? strprintf("--set model.moe.router.bias_steps=%.0f",
                                std::max(1.0, router.resolved_bias_steps() / 3))
                    : strprintf("--set model.moe.router.bias_rate=%g", 10 * rate)) +
             (by_sign
                  ? strprintf(", or --set %sbias_rule=proportional with a number as %sbias_rate",
                              kRouter, kRouter)
                  : "") +
             ", or " + kAux +
             ", which acts on the scores themselves; compare the validation losses, since balance "
             "competes with them"});
  }
}

int64_t layer_saturated_at(const RouterAnalysis& a, int64_t step) {
  const auto found = std::find_if(a.layers.begin(), a.layers.end(),
                                  [&](const RouterLayer& l) { return l.saturated_at == step; });
  CHECK(found != a.layers.end(), "no layer saturated at step %ld", long(step));
  return found->layer;
}

std::vector<RouterAdvice> advice_for(const RouterAnalysis& a, const Config& config,
                                     const Facts& f) {
  const RouterConfig& router = config.model.moe->router;
  const bool has_aux = has_working_aux(*config.model.moe);
  std::vector<RouterAdvice> advice;
  if (!has_aux && !router.bias_rate.on()) {
    const bool only_gate = router.aux == RouterAux::kGates && router.aux_alpha > 0;
    advice.push_back({"no_balancing",
                      strprintf("%s is %s with aux_alpha %g%s, bias_rate is 0", kAux.c_str(),
                                name_of(router.aux), router.aux_alpha,
                                only_gate ? ", without effect on a token's only gate" : ""),
                      strprintf("--set %saux=switch --set %saux_alpha=0.01, or --set "
                                "%sbias_rate=0.001",
                                kRouter, kRouter, kRouter)});
  }
  advise_on_bias(a, router, f, advice);
  if (has_aux) {
    advice.push_back(
        {"aux_too_weak",
         strprintf("%s is %s with aux_alpha %g, and the loads are still uneven", kAux.c_str(),
                   name_of(router.aux), router.aux_alpha),
         strprintf("--set %saux_alpha=%g; compare the validation losses, since it competes with "
                   "them",
                   kRouter, 10 * router.aux_alpha)});
  }
  if (f.worst->gate_entropy_norm && *f.worst->gate_entropy_norm < kHardGates) {
    advice.push_back({"hard_gates",
                      strprintf("layer %ld: gate entropy %.2f of ln K, one expert has nearly all "
                                "of a token's gate weight",
                                long(f.worst->layer), *f.worst->gate_entropy_norm),
                      strprintf("--set %sz_alpha=0.001 keeps the logits small; or a smaller "
                                "optimizer.router_lr",
                                kRouter)});
  }
  const std::optional<int64_t> first_saturated = f.health.first_saturated();
  if (first_saturated && double(*first_saturated) <= kEarlyShare * double(a.planned_steps)) {
    advice.push_back({"saturated_early",
                      strprintf("layer %ld, the first to saturate, did so at step %ld of %ld",
                                long(layer_saturated_at(a, *first_saturated)),
                                long(*first_saturated), long(a.planned_steps)),
                      "a longer schedule.warmup or a smaller optimizer.router_lr, so that the "
                      "router does not settle before the experts differ"});
  }
  return advice;
}

// How far it is the router that changes, and not what the batches hold.
std::string kept_text(const RouterLayer& layer) {
  if (layer.steps->overlap) {
    return strprintf("of the choices on fixed tokens %.1f%% stay from one probe to the next",
                     100 * *layer.steps->overlap);
  }
  return "choices on fixed tokens were not recorded, so what the batches hold may be a part of it";
}

// A bias that overshoots turns the order round from one step to the next, so that much of the swing
// is there between two neighbouring steps. Otherwise the scores move, over many steps, and the bias
// comes after them: a smaller rate would leave it further behind.
std::vector<RouterAdvice> advice_on_turns(const RouterAnalysis& a, const RouterConfig& router,
                                          const Facts& f) {
  const auto found = std::find_if(a.layers.begin(), a.layers.end(), [&](const RouterLayer& l) {
    return l.layer == f.health.worst_steps_layer;
  });
  CHECK(found != a.layers.end(), "no layer %ld", long(f.health.worst_steps_layer));
  const RouterLayer& layer = *found;
  const std::string measured =
      strprintf(
          "layer %ld: the loads of a step swing by %.0f%% of the mean load around those of "
          "the window; ",
          long(layer.layer), layer.steps->swing) +
      kept_text(layer);
  const double moved = std::sqrt(
      std::max(0.0, std::pow(layer.turnover.value_or(0), 2) - std::pow(a.turnover_floor, 2)));
  if (router.bias_rate.on() && moved >= least_change(layer.steps->swing)) {
    return {overshoots(a, router, layer, measured, strprintf("%g", router.bias_rate.number))};
  }
  return {{"scores_move", measured + (layer.turnover ? "; only " : "; ") + turnover_text(a, layer),
           "a smaller optimizer.router_lr, so that the scores change no faster than the loads are "
           "balanced; compare the validation losses"}};
}

}  // namespace

RouterVerdict router_verdict(const RouterAnalysis& analysis, const Config& config) {
  const Facts facts = facts_of(analysis);
  const RouterJudgement judgement = judge_router(facts.health);
  RouterVerdict verdict{.state = judgement.state,
                        .rule = judgement.rule,
                        .because = numbers_of(analysis, facts),
                        .advice = {}};
  const std::optional<int64_t> saturated = facts.health.first_saturated();
  const bool restless = verdict.state == RouterState::kRestless;
  if (saturated && (restless || verdict.state == RouterState::kRecovered)) {
    verdict.because += strprintf("; first saturated at step %ld", long(*saturated));
  }
  if (restless) verdict.advice = advice_on_turns(analysis, config.model.moe->router, facts);
  if (verdict.state == RouterState::kCollapsed || verdict.state == RouterState::kUneven) {
    verdict.advice = advice_for(analysis, config, facts);
  }
  return verdict;
}

}  // namespace assay
