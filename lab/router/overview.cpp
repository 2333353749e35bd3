#include "lab/router/overview.h"

#include "base/check.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

RouterLine line_of(const RunRecord& run) {
  const RouterHealth& health = *run.health;
  RouterLine line{.run = run.name,
                  .experts = health.experts,
                  .top_k = health.top_k,
                  .last_step = run.last_logged,
                  .planned_steps = run.config.run.steps,
                  .end = run.end,
                  .state = router_state(health),
                  .effective_share = find_run_measure("effective_share")->of(run),
                  .max_load_norm_worst = health.worst_max_load_norm,
                  .worst_layer = health.worst_layer};
  if (health.logged >= health.window) line.dead_share = health.dead_share;
  return line;
}

std::string three_digits(const std::optional<double>& value) {
  return value ? strprintf("%.3f", *value) : "";
}

Json share_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

RouterOverview router_overview(const std::string& of, const std::vector<std::string>& runs) {
  RouterOverview overview{.of = of};
  for (const std::string& path : runs) {
    try {
      const RunRecord run = read_run(path);
      if (run.health) {
        overview.lines.push_back(line_of(run));
      } else {
        const bool dense = moe_blocks(run.config.model) == 0;
        overview.left_out.push_back(
            path + (dense ? ": the model is dense" : ": no step of its routers is logged yet"));
      }
    } catch (const UserError& error) {
      overview.left_out.push_back(path + ": " + error.what());
    }
  }
  if (overview.lines.empty()) {
    throw UserError(strprintf("%s: none of its %zu runs has a router to show (%s)", of.c_str(),
                              runs.size(), overview.left_out.front().c_str()),
                    "give a matrix with model.moe in which a run has logged a step");
  }
  return overview;
}

std::string overview_text(const RouterOverview& overview) {
  TextTable table(
      {"run", "E", "K", "verdict", "dead", "exp(H)/E", "worst K max_load", "layer", "step"});
  for (const RouterLine& l : overview.lines) {
    table.add({l.run, grouped(l.experts), std::to_string(l.top_k), state_word(l.state),
               l.dead_share ? strprintf("%.1f%%", 100 * *l.dead_share) : "",
               three_digits(l.effective_share), three_digits(l.max_load_norm_worst),
               std::to_string(l.worst_layer), grouped(l.last_step)});
  }
  std::string text =
      strprintf(
          "%s: the routers of %zu runs, over the last W logged steps of each, or those it has\n\n",
          overview.of.c_str(), overview.lines.size()) +
      table.text() +
      "\ndead: share of the experts without an assignment; exp(H)/E: of the layer where it is "
      "smallest; layer: that with the largest K max_load\n"
      "exp(H)/E compares numbers of experts E, K max_load only runs of one E and K\n";
  for (const std::string& one : overview.left_out) text += "left out: " + one + "\n";
  return text;
}

Json overview_json(const RouterOverview& overview) {
  Json json = Json::array();
  for (const RouterLine& l : overview.lines) {
    Json one;
    one["run"] = l.run;
    one["experts"] = l.experts;
    one["top_k"] = l.top_k;
    one["state"] = name_of(l.state);
    one["dead_share"] = share_json(l.dead_share);
    one["effective_share"] = share_json(l.effective_share);
    one["max_load_norm_worst"] = l.max_load_norm_worst;
    one["worst_layer"] = l.worst_layer;
    one["last_step"] = l.last_step;
    one["planned_steps"] = l.planned_steps;
    one["ended_by"] = l.end.empty() ? Json() : Json(l.end);
    json.push_back(one);
  }
  return json;
}

}  // namespace assay
