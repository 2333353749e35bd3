#include "lab/router/text.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/runs/router_state.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

std::string fixed(double value, int digits) {
  return strprintf("%.*f", digits, value);
}
std::string fixed(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "";
}
std::string percent(double share) {
  return strprintf("%.1f%%", 100 * share);
}
// Of dead experts, which are unknown before W logged steps.
std::string count_of(const std::optional<int64_t>& dead) {
  return dead ? grouped(*dead) : "-";
}
std::string step_of(const std::optional<int64_t>& step) {
  return step ? grouped(*step) : "";
}

std::string head_text(const RouterAnalysis& a) {
  std::string text = strprintf(
      "%s: E = %ld experts, K = %ld per token, %zu MoE layers, %s logged step%s up to %s of %s",
      a.run.c_str(), long(a.experts), long(a.top_k), a.layers.size(), grouped(a.logged).c_str(),
      a.logged == 1 ? "" : "s", grouped(a.last_step).c_str(), grouped(a.planned_steps).c_str());
  text += a.end.empty()      ? ", not finished\n"
          : a.end == "steps" ? ", finished\n"
                             : ", ended by " + a.end + "\n";
  return text + strprintf(
                    "ceilings: cv %.1f%%, max_load %.2f%%, entropy %.3f nats; W = %ld logged "
                    "steps\n",
                    a.cv_ceiling, 100 * a.max_load_ceiling, a.entropy_ceiling, long(a.window));
}

std::string steps_text(const RouterAnalysis& a) {
  TextTable table({"step", "loss", "cv", "/ceiling", "floor", "max_load", "x K", "worst", "layer",
                   "min H", "/ln E", "exp(H)/E", "min active", "dead", "saturated"});
  for (const RouterAtStep& s : a.steps) {
    table.add({grouped(s.step), fixed(s.loss_nats, 3), fixed(s.cv_mean, 1) + "%",
               fixed(s.cv_norm_mean, 3), fixed(s.cv_floor, 1) + "%",
               strprintf("%.2f%%", 100 * s.max_load_mean), fixed(s.max_load_norm_mean, 3),
               fixed(s.max_load_norm_worst, 3), std::to_string(s.worst_layer),
               fixed(s.entropy_min, 2), fixed(s.entropy_norm_min, 3), fixed(s.e_eff_norm_min, 3),
               grouped(s.active_min), count_of(s.dead), std::to_string(s.saturated)});
  }
  return "\nat single steps, over layers: mean cv and max_load, the worst K max_load and its "
         "layer, "
         "smallest entropy H and exp(H)/E; dead: no assignment in the last W\n" +
         table.text();
}

std::string layers_text(const RouterAnalysis& a) {
  TextTable table({"layer",      "saturated at", "cv",       "/ceiling", "max_load",
                   "x K",        "H/ln E",       "exp(H)/E", "gini",     "dead",
                   "never used", "dead for",     "turnover", "step cv",  "swing",
                   "bias range", "margin",       "lead",     "gate H",   "overlap"});
  for (const RouterLayer& l : a.layers) {
    table.add({std::to_string(l.layer),
               step_of(l.saturated_at),
               fixed(l.cv, 1) + "%",
               fixed(l.cv_norm, 3),
               strprintf("%.2f%%", 100 * l.max_load),
               fixed(l.max_load_norm, 3),
               fixed(l.entropy_norm, 3),
               fixed(l.e_eff_norm, 3),
               fixed(l.gini, 3),
               count_of(l.dead),
               grouped(l.never_used),
               l.dead.value_or(0) > 0 ? grouped(l.dead_median) + "-" + grouped(l.dead_longest) : "",
               l.turnover ? percent(*l.turnover) : "-",
               l.steps ? fixed(l.steps->cv, 1) + "%" : "",
               l.steps ? fixed(l.steps->swing, 1) + "%" : "",
               fixed(l.bias_range, 4),
               fixed(l.margin, 4),
               fixed(l.lead, 4),
               fixed(l.gate_entropy_norm, 3),
               fixed(l.overlap, 3)});
  }
  return "\nby layer, over the last W logged steps; dead for: steps since the last assignment, "
         "median "
         "and longest\n" +
         table.text() +
         strprintf(
             "turnover: share of the assignments that go to other experts than at the previous "
             "logged step; sampling alone gives %s\nstep cv: median of the single steps; swing: "
             "what of "
             "it neither the cv of the window nor sampling explains (squares add)\n",
             percent(a.turnover_floor).c_str());
}

std::string first_crossings_text(const RouterAnalysis& a) {
  std::vector<const RouterLayer*> order;
  for (const RouterLayer& l : a.layers) {
    if (l.saturated_at) order.push_back(&l);
  }
  const double limit = saturation_limit(a.experts, a.top_k);
  if (!std::isfinite(limit)) return "\nK = E: no layer can saturate\n";
  if (order.empty()) {
    return strprintf("\nno layer had max_load >= %.3g / K at a logged step\n", limit);
  }
  std::stable_sort(order.begin(), order.end(), [](const RouterLayer* x, const RouterLayer* y) {
    return *x->saturated_at < *y->saturated_at;
  });
  std::string text = strprintf("\nfirst step with max_load >= %.3g / K:", limit);
  for (const RouterLayer* l : order) {
    text += strprintf("%s layer %ld at %s", l == order.front() ? "" : ",", long(l->layer),
                      grouped(*l->saturated_at).c_str());
  }
  return text + "\n";
}

std::string ccdf_text(const RouterAnalysis& a) {
  std::vector<std::string> heads = {"layer"};
  for (const double load : a.ccdf_loads) heads.push_back(strprintf(">= %gx", load));
  TextTable table(heads);
  for (const RouterLayer& l : a.layers) {
    std::vector<std::string> cells = {std::to_string(l.layer)};
    for (const double share : l.ccdf) cells.push_back(percent(share));
    table.add(cells);
  }
  return "\nshare of the experts with at least this multiple of the mean load, over the last W\n" +
         table.text();
}

std::string verdict_text(const RouterVerdict& v) {
  std::string text = "\nverdict: " + state_word(v.state) + "\n  because " + v.because +
                     "\n  rule: " + v.rule + "\n";
  for (const RouterAdvice& a : v.advice) {
    text += "  advice: " + a.advice + "\n    because " + a.because + "\n";
  }
  return text;
}

Json number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}
Json number(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json();
}

Json step_json(const RouterAtStep& s) {
  Json json;
  json["step"] = s.step;
  json["loss_nats"] = number(s.loss_nats);
  json["cv_mean"] = s.cv_mean;
  json["cv_norm_mean"] = number(s.cv_norm_mean);
  json["cv_floor"] = s.cv_floor;
  json["max_load_mean"] = s.max_load_mean;
  json["max_load_norm_mean"] = s.max_load_norm_mean;
  json["max_load_norm_worst"] = s.max_load_norm_worst;
  json["worst_layer"] = s.worst_layer;
  json["entropy_min"] = s.entropy_min;
  json["entropy_norm_min"] = number(s.entropy_norm_min);
  json["e_eff_norm_min"] = number(s.e_eff_norm_min);
  json["active_min"] = s.active_min;
  json["dead_for"] = number(s.dead);
  json["saturated_layers"] = s.saturated;
  return json;
}

Json layer_json(const RouterLayer& l) {
  Json json;
  json["layer"] = l.layer;
  json["saturated_at_step"] = number(l.saturated_at);
  json["cv"] = l.cv;
  json["cv_norm"] = number(l.cv_norm);
  json["cv_floor"] = l.cv_floor;
  json["max_load"] = l.max_load;
  json["max_load_norm"] = l.max_load_norm;
  json["entropy_norm"] = number(l.entropy_norm);
  json["e_eff_norm"] = number(l.e_eff_norm);
  json["gini"] = l.gini;
  json["active_norm"] = l.active_norm;
  json["dead"] = number(l.dead);
  json["never_used"] = l.never_used;
  json["dead_steps_median"] = l.dead ? Json(l.dead_median) : Json();
  json["dead_steps_longest"] = l.dead ? Json(l.dead_longest) : Json();
  json["turnover"] = number(l.turnover);
  json["step_cv"] = l.steps ? Json(l.steps->cv) : Json();
  json["step_cv_floor"] = l.steps ? Json(l.steps->cv_floor) : Json();
  json["step_max_load_norm"] = l.steps ? Json(l.steps->max_load_norm) : Json();
  json["swing"] = l.steps ? Json(l.steps->swing) : Json();
  json["bias_range"] = number(l.bias_range);
  json["margin"] = number(l.margin);
  json["lead"] = number(l.lead);
  json["gate_entropy_norm"] = number(l.gate_entropy_norm);
  json["overlap"] = number(l.overlap);
  json["overlap_median"] = l.steps ? number(l.steps->overlap) : Json();
  json["choices_changed"] = l.steps ? number(l.steps->changed) : Json();
  json["ccdf"] = l.ccdf;
  return json;
}

Json verdict_json(const RouterVerdict& v) {
  Json json;
  json["state"] = name_of(v.state);
  json["rule"] = v.rule;
  json["because"] = v.because;
  json["advice"] = Json::array();
  for (const RouterAdvice& a : v.advice) {
    Json advice;
    advice["rule"] = a.rule;
    advice["because"] = a.because;
    advice["advice"] = a.advice;
    json["advice"].push_back(advice);
  }
  return json;
}

}  // namespace

std::string router_text(const RouterAnalysis& a) {
  return head_text(a) + steps_text(a) + layers_text(a) + first_crossings_text(a) + ccdf_text(a) +
         verdict_text(a.verdict);
}

Json router_json(const RouterAnalysis& a) {
  Json json;
  json["run"] = a.run;
  json["ended_by"] = a.end.empty() ? Json() : Json(a.end);
  json["experts"] = a.experts;
  json["top_k"] = a.top_k;
  json["window"] = a.window;
  json["logged_steps"] = a.logged;
  json["last_step"] = a.last_step;
  json["planned_steps"] = a.planned_steps;
  json["cv_ceiling"] = a.cv_ceiling;
  json["max_load_ceiling"] = a.max_load_ceiling;
  json["entropy_ceiling"] = a.entropy_ceiling;
  json["turnover_floor"] = a.turnover_floor;
  json["ccdf_loads"] = a.ccdf_loads;
  json["steps"] = Json::array();
  for (const RouterAtStep& s : a.steps) json["steps"].push_back(step_json(s));
  json["layers"] = Json::array();
  for (const RouterLayer& l : a.layers) json["layers"].push_back(layer_json(l));
  json["verdict"] = verdict_json(a.verdict);
  return json;
}

}  // namespace assay
