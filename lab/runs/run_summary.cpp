#include "lab/runs/run_summary.h"

#include "base/check.h"
#include "base/shell_word.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

Json health_json(const std::optional<RouterHealth>& health) {
  if (!health) return nullptr;
  Json json;
  json["worst_layer"] = health->worst_layer;
  json["worst_max_load_norm"] = health->worst_max_load_norm;
  json["mean_cv_norm"] = health->mean_cv_norm;
  json["min_entropy_norm"] = health->min_entropy_norm;
  json["dead_share"] = health->dead_share;
  json["saturated_layers"] = health->saturated;
  const bool restless = router_state(*health) == RouterState::kRestless;
  json["restless_layers"] = restless ? health->restless : std::vector<int64_t>{};
  json["state"] = name_of(router_state(*health));
  json["collapsed"] = router_state(*health) == RouterState::kCollapsed;
  return json;
}

std::string capability_text(const std::optional<RecordedCore>& core) {
  if (!core) return "capability: not evaluated";
  return strprintf("capability: %s %.4f +- %.4f at step %ld", core->name.c_str(), core->value,
                   core->standard_error, long(core->step));
}

Json capability_json(const std::optional<RecordedCore>& core) {
  if (!core) return nullptr;
  Json json;
  json["name"] = core->name;
  json["value"] = core->value;
  json["standard_error"] = core->standard_error;
  json["step"] = core->step;
  return json;
}

Json target_json(const RunRecord& run) {
  const std::optional<TimeToTarget> reached = target_reached(run);
  if (run.config.run.target_loss <= 0) return nullptr;
  Json json;
  json["target_loss_nats"] = run.config.run.target_loss;
  json["reached"] = reached.has_value();
  if (!reached) return json;
  json["loss_nats"] = reached->loss_nats;
  json["step"] = reached->steps;
  json["tokens"] = int64_t(reached->tokens);
  json["seconds"] = reached->seconds ? Json(*reached->seconds) : Json();
  json["flops"] = reached->flops;
  return json;
}

Json contract_json(const RunRecord& run) {
  const ContractConfig& c = run.config.contract;
  Json json;
  json["kind"] = name_of(c.kind);
  json["coefficient"] = c.coefficient;
  json["derived_from"] = c.derived_from;
  json["fraction"] = c.fraction;
  json["steps"] = run.config.run.steps;
  return json;
}

}  // namespace

std::optional<TimeToTarget> target_reached(const RunRecord& run) {
  const double target = run.config.run.target_loss;
  return target > 0 ? time_to_target(run, target) : std::nullopt;
}

bool is_pathological_win(const RunRecord& run) {
  return run.end == "target_loss" && run.health &&
         router_state(*run.health) == RouterState::kCollapsed;
}

std::vector<std::string> summary_lines(const RunRecord& run) {
  std::vector<std::string> lines;
  if (run.core || run.config.eval.core) lines.push_back(capability_text(run.core));
  if (run.health) {
    lines.push_back("routers: " + state_word(router_state(*run.health)) + ": " +
                    run.health->text() + " (assay router " + shell_word(run.path) + ")");
  }
  if (const auto reached = target_reached(run)) {
    const std::string seconds =
        reached->seconds ? strprintf("%.1f s", *reached->seconds) : std::string("unknown seconds");
    lines.push_back(strprintf(
        "target %g reached: %.4f nats at step %ld, %ld tokens, %s of training, %.4g FLOPs",
        run.config.run.target_loss, reached->loss_nats, long(reached->steps), long(reached->tokens),
        seconds.c_str(), reached->flops));
  } else if (run.config.run.target_loss > 0) {
    lines.push_back(strprintf("target %g not reached", run.config.run.target_loss));
  }
  if (is_pathological_win(run)) {
    lines.push_back("pathological win: the target was reached with collapsed routers");
  }
  return lines;
}

Json summary_json(const RunRecord& run) {
  Json json;
  const std::optional<EvalValue> last = run.last_val();
  const std::optional<double> loss = finite_value(last);
  json["loss_nats"] = loss ? Json(*loss) : Json();
  json["loss_step"] = last ? Json(last->step) : Json();
  json["capability"] = capability_json(run.core);
  json["health"] = health_json(run.health);
  json["pathological_win"] = is_pathological_win(run);
  json["target"] = target_json(run);
  json["contract"] = contract_json(run);
  const std::optional<StepValue> time = run.time_at(run.steps_done);
  json["train_s"] = time ? Json(time->value) : Json();
  json["train_s_step"] = time ? Json(time->step) : Json();
  return json;
}

}  // namespace assay
