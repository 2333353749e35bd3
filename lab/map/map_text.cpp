#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/joined.h"
#include "base/memory_units.h"
#include "lab/map/contract_map.h"
#include "lab/runs/text_table.h"
#include "models/audit/model_table.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

const MapModel& model(const ContractMap& map, size_t index) {
  return map.set.models[index];
}

// "200, 400, 1000": of all seeds.
std::string steps_text(const MapModel& m) {
  std::set<int64_t> steps;
  for (const Endpoint& e : m.endpoints) steps.insert(e.steps);
  return joined(steps, ", ");
}

std::optional<double> peak_memory(const MapModel& m) {
  std::optional<double> peak;
  for (const Endpoint& e : m.endpoints) {
    const auto& value = e.of(CostAxis::kMemory).value;
    if (value) peak = std::max(peak.value_or(0), *value);
  }
  return peak;
}

std::string pair_name(const ContractMap& map, const MapPair& pair) {
  return model(map, pair.second).name + " - " + model(map, pair.first).name;
}

// Of many models only the pairs with the first one.
bool is_shown(const ContractMap& map, const MapPair& pair) {
  return map.set.models.size() <= 3 || pair.first == 0;
}

std::string answer_text(const ContractMap& map) {
  TextTable table({"axis", "models", "ahead", "the order turns at"});
  for (const MapAxis& axis : map.axes) {
    const std::string name = words_of(axis.axis).title;
    if (!axis.absent.empty()) {
      table.add({name, "", "", axis.absent});
      continue;
    }
    for (const MapPair& pair : axis.pairs) {
      if (!is_shown(map, pair)) continue;
      const std::string pair_text =
          model(map, pair.first).name + ", " + model(map, pair.second).name;
      if (!pair.absent.empty()) {
        table.add({name, pair_text, "", pair.absent});
      } else {
        table.add({name, pair_text, budgets_text(map, pair), crossing_text(map, axis.axis, pair)});
      }
    }
  }
  return table.text();
}

std::string ahead_text(const ContractMap& map, const MapPair& pair, const BudgetRow& row) {
  if (row.ahead == Ahead::kUndecided) {
    return row.difference.summary.no_spread() ? std::string("undecided: ") + kNoSpread
                                              : "undecided";
  }
  if (row.ahead == Ahead::kTie) return "equal";
  const size_t who = row.ahead == Ahead::kFirst ? pair.first : pair.second;
  return model(map, who).name + (row.by_chord() ? " over ~" : "") +
         (row.decided() ? "" : " (one seed)");
}

std::string pair_text(const ContractMap& map, const MapAxis& axis, const MapPair& pair) {
  if (!pair.absent.empty() || pair.on.budgets.empty()) return "";
  const AxisWords& words = words_of(axis.axis);
  TextTable table({words.title, model(map, pair.first).name, model(map, pair.second).name,
                   pair_name(map, pair), "95% interval", "seeds", "ahead"});
  for (const BudgetRow& row : pair.on.budgets) {
    const Summary& difference = row.difference.summary;
    const auto value = [](const Summary& of, bool interpolated) {
      return strprintf("%.4f%s", of.mean, interpolated ? "~" : " ");
    };
    table.add({cost_text(row.cost), value(row.first, row.first_interpolated),
               value(row.second, row.second_interpolated), strprintf("%+.4f", difference.mean),
               difference.interval95 ? strprintf("[%+.4f, %+.4f]", difference.interval95->low,
                                                 difference.interval95->high)
                                     : "",
               std::to_string(difference.n), ahead_text(map, pair, row)});
  }
  std::string text =
      "\n" + table.text() + "turns at: " + crossing_text(map, axis.axis, pair) + "\n";
  for (const std::string& note : pair.notes) text += "note: " + note + "\n";
  return text;
}

Json number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json();
}

Json model_json(const MapModel& m) {
  Json json = {{"name", m.name},
               {"p_total", m.p_total},
               {"p_active", m.p_active},
               {"flops_per_token", m.flops_per_token},
               {"endpoints", Json::array()}};
  for (const Endpoint& e : m.endpoints) {
    Json endpoint = {{"run", e.run},           {"seed", e.seed},
                     {"steps", e.steps},       {"value", e.value},
                     {"device", e.device},     {"machine", e.machine.text()},
                     {"cost", Json::object()}, {"missing", Json::object()}};
    for (const AxisWords& words : cost_axes()) {
      const Spent& cost = e.of(words.axis);
      endpoint["cost"][words.name] = number(cost.value);
      if (!cost.value) endpoint["missing"][words.name] = cost.missing;
    }
    json["endpoints"].push_back(endpoint);
  }
  return json;
}

const char* ahead_name(const BudgetRow& row) {
  switch (row.ahead) {
    case Ahead::kUndecided:
      return "undecided";
    case Ahead::kTie:
      return "equal";
    case Ahead::kFirst:
      return "first";
    case Ahead::kSecond:
      return "second";
  }
  return "";
}

Json pair_json(const ContractMap& map, const MapAxis& axis, const MapPair& pair) {
  Json json = {{"first", model(map, pair.first).name}, {"second", model(map, pair.second).name}};
  json["absent"] = pair.absent.empty() ? Json() : Json(pair.absent);
  json["notes"] = pair.notes;
  json["budgets"] = Json::array();
  for (const BudgetRow& row : pair.on.budgets) {
    const Summary& difference = row.difference.summary;
    json["budgets"].push_back({{"cost", row.cost},
                               {"first", row.first.mean},
                               {"second", row.second.mean},
                               {"first_interpolated", row.first_interpolated},
                               {"second_interpolated", row.second_interpolated},
                               {"difference", difference.mean},
                               {"interval95", interval_json(difference.interval95)},
                               {"seeds", row.difference.seeds},
                               {"ahead", ahead_name(row)}});
  }
  json["crossing"] = number(pair.on.crossing);
  json["crossing95"] = interval_json(pair.on.crossing95);
  json["turns"] = pair.on.turns();
  json["by_seed"] = Json::array();
  for (const SeedCrossings& seed : pair.on.crossings) {
    json["by_seed"].push_back(
        {{"seed", seed.seed}, {"low", seed.low}, {"high", seed.high}, {"crossings", seed.at}});
  }
  if (pair.absent.empty()) {
    json["ahead_text"] = budgets_text(map, pair);
    json["crossing_text"] = crossing_text(map, axis.axis, pair);
  }
  return json;
}

}  // namespace

std::vector<std::vector<std::string>> model_rows(const ContractMap& map) {
  std::vector<std::vector<std::string>> rows = {{"model", "P_total", "P_active", "FLOPs/token",
                                                 "peak memory", "seeds", "steps of its endpoints"}};
  for (const MapModel& m : map.set.models) {
    const auto peak = peak_memory(m);
    rows.push_back({m.name, grouped(m.p_total), grouped(m.p_active), grouped(m.flops_per_token),
                    peak ? strprintf("%.0f MiB", in_mib(*peak)) : "",
                    std::to_string(m.seeds().size()), steps_text(m)});
  }
  return rows;
}

std::string map_text(const ContractMap& map) {
  size_t endpoints = 0;
  for (const MapModel& m : map.set.models) endpoints += m.endpoints.size();
  std::string text = strprintf(
      "%zu endpoints of %zu models by %s; intervals are Student's 95%% of differences "
      "seed by seed\n\n",
      endpoints, map.set.models.size(), measure_title(map.measure).c_str());
  const auto models = model_rows(map);
  TextTable table(models.front());
  for (size_t i = 1; i < models.size(); ++i) table.add(models[i]);
  text += table.text() + "\n" + answer_text(map);
  bool hidden = false;
  for (const MapAxis& axis : map.axes) {
    for (const MapPair& pair : axis.pairs) {
      if (is_shown(map, pair)) text += pair_text(map, axis, pair);
      hidden |= !is_shown(map, pair);
    }
  }
  text +=
      "\n~: no endpoint within 1%; linear in the logarithm of the cost between two, which is "
      "rather too bad\nover ~: the model behind has such a value, and may be behind for that "
      "alone\n"
      "an endpoint within 1% has no ~; its value is read at the budget, on the same line\n";
  if (hidden) {
    text += "pairs without " + model(map, 0).name + ": --models " + model(map, 1).name + "," +
            model(map, 2).name + ", or --json\n";
  }
  for (const Confound& confound : map.set.confounds) text += "confound: " + confound.text + "\n";
  for (const std::string& note : map.set.notes) text += "note: " + note + "\n";
  for (const SkippedRun& out : map.set.left_out)
    text += "left out: " + out.run + ": " + out.reason + "\n";
  return text;
}

Json map_json(const ContractMap& map) {
  Json json = {{"measure", map.measure == MapMeasure::kCore ? "core" : "val_loss"},
               {"better", map.better() == Better::kLower ? "lower" : "higher"},
               {"interval", "Student's 95% over the shared seeds"},
               {"models", Json::array()},
               {"confounds", confounds_json(map.set.confounds)},
               {"notes", map.set.notes},
               {"left_out", Json::array()},
               {"axes", Json::array()}};
  for (const MapModel& m : map.set.models) json["models"].push_back(model_json(m));
  for (const SkippedRun& out : map.set.left_out) {
    json["left_out"].push_back({{"run", out.run}, {"reason", out.reason}});
  }
  for (const MapAxis& axis : map.axes) {
    const AxisWords& words = words_of(axis.axis);
    Json one = {{"axis", words.name}, {"title", words.title}, {"unit", words.unit}};
    one["absent"] = axis.absent.empty() ? Json() : Json(axis.absent);
    one["pairs"] = Json::array();
    for (const MapPair& pair : axis.pairs) one["pairs"].push_back(pair_json(map, axis, pair));
    json["axes"].push_back(one);
  }
  return json;
}

}  // namespace assay
