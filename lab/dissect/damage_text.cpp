// The table and the JSON of `assay dissect damage`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/dissect/damage.h"
#include "lab/runs/text_table.h"
#include "models/audit/audit_report.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

std::string cell(const Damage& damage) {
  if (damage.nats == 0 && damage.se.value_or(0) == 0) return "0";
  std::string text = strprintf("%+.4f", damage.nats);
  if (damage.se) text += strprintf(" ± %.4f", *damage.se);
  return text;
}

// Rows of one name together: its damage by removal.
struct Row {
  const Intervention* first;
  std::string name;
  int64_t experts = 0;
  std::map<Removal, Damage> by_removal;
  Damage only;  // of a change that has no removal
};

std::vector<Row> rows_of(const DamageReport& report, int64_t layer) {
  std::vector<Row> rows;
  for (size_t i = 0; i < report.done.size(); ++i) {
    const Intervention& change = report.done[i];
    if (change.layer != layer) continue;
    if (rows.empty() || rows.back().first->name() != change.name()) {
      rows.push_back({&change, change.name(), int64_t(change.experts.size()), {}, {}});
    }
    if (change.what == Intervention::What::kExperts) {
      rows.back().by_removal[change.removal] = report.damage[i];
    } else {
      rows.back().only = report.damage[i];
    }
  }
  return rows;
}

// One row instead of several of a kind in turn whose experts have no load, which have no damage
// either: "group 3 to 7", "12 unused experts".
std::vector<Row> with_unused_together(const std::vector<Row>& rows) {
  const auto unused = [](const Row& row) {
    return row.first->what == Intervention::What::kExperts && row.first->share == 0;
  };
  std::vector<Row> fewer;
  for (const Row& row : rows) {
    const ExpertGroup& group = row.first->group;
    if (fewer.empty() || !unused(row) || !unused(fewer.back()) ||
        group.of != fewer.back().first->group.of) {
      fewer.push_back(row);
      continue;
    }
    Row& together = fewer.back();
    together.experts += row.experts;
    together.name = group.of == ExpertGroup::Of::kExpert
                        ? strprintf("%ld unused experts", long(together.experts))
                        : together.first->name() + strprintf(" to %ld", long(group.number));
  }
  return fewer;
}

std::string layer_text(const DamageReport& report, const LayerLoads& loads) {
  TextTable table({"without", "experts", "load", "zero", "next", "mean"});
  for (const Row& row : with_unused_together(rows_of(report, loads.layer))) {
    const bool experts = row.first->what == Intervention::What::kExperts;
    const auto of = [&](Removal removal) {
      const auto found = row.by_removal.find(removal);
      return found == row.by_removal.end() ? std::string() : cell(found->second);
    };
    table.add({row.name, experts ? grouped(row.experts) : "",
               experts ? strprintf("%.2f%%", 100 * row.first->share) : "",
               experts ? of(Removal::kZero) : cell(row.only), of(Removal::kNext),
               of(Removal::kMean)});
  }
  return table.text();
}

// "layer 2: the busiest decile takes 98% of the assignments and does 99% of the damage".
std::string sentence(const DamageReport& report, const LayerLoads& loads) {
  double all = 0, first = 0, share = 0;
  std::string name;
  for (size_t i = 0; i < report.done.size(); ++i) {
    const Intervention& change = report.done[i];
    if (change.layer != loads.layer || change.what != Intervention::What::kExperts ||
        change.removal != Removal::kZero || change.group.of == ExpertGroup::Of::kExpert) {
      continue;
    }
    if (name.empty()) {
      name = change.name();
      first = report.damage[i].nats;
      share = change.share;
    }
    all += std::max(0.0, report.damage[i].nats);
  }
  if (name.empty() || all <= 0) return "";
  return strprintf(
      "layer %ld: %s, the busiest, has %.1f%% of the assignments and %.1f%% of the "
      "damage by zero that the groups do one at a time\n",
      long(loads.layer), name.c_str(), 100 * share, 100 * std::max(0.0, first) / all);
}

bool has_next(const DamageReport& report) {
  return std::any_of(report.done.begin(), report.done.end(), [](const Intervention& change) {
    return change.what == Intervention::What::kExperts && change.removal == Removal::kNext;
  });
}

Json damage_values(const Damage& damage) {
  Json json;
  json["nats"] = damage.nats;
  json["standard_error"] = damage.se ? Json(*damage.se) : Json();
  json["targets"] = damage.targets;
  return json;
}

}  // namespace

std::string damage_text(const DamageReport& report) {
  std::string text = strprintf(
      "%s, step %ld: E = %ld experts, K = %ld per token, %zu MoE layers\n"
      "%s held-out tokens, loss %.4f nats; damage: what a change adds to it, ± its standard "
      "error\n",
      report.run.c_str(), long(report.step), long(report.experts), long(report.top_k),
      report.loads.size(), grouped(report.tokens).c_str(), report.base.nats);
  for (const LayerLoads& loads : report.loads) {
    const std::string table = layer_text(report, loads);
    if (rows_of(report, loads.layer).empty()) continue;
    text += strprintf("\nlayer %ld\n", long(loads.layer)) + table;
  }
  text +=
      "\nzero: still chosen, contributes nothing; next: cannot be chosen, the next best takes its "
      "place; mean: contributes its mean output\n";
  if (report.next_keeps_sum && has_next(report)) {
    text +=
        "note: the gates are softmax probabilities that are not normalised, and next keeps the "
        "removed experts in their sum: gates are smaller than those of a model without them\n";
  }
  for (const LayerLoads& loads : report.loads) text += sentence(report, loads);
  return text;
}

Json damage_json(const DamageReport& report) {
  Json json;
  json["run"] = report.run;
  json["checkpoint"] = report.checkpoint;
  json["step"] = report.step;
  json["text_sha256"] = report.text_sha256;
  json["experts"] = report.experts;
  json["top_k"] = report.top_k;
  json["tokens"] = report.tokens;
  json["loss_nats"] = report.base.nats;
  json["targets"] = report.base.targets;
  json["changes"] = Json::array();
  for (size_t i = 0; i < report.done.size(); ++i) {
    const Intervention& change = report.done[i];
    Json j;
    j["layer"] = change.layer;
    j["without"] = change.name();
    if (change.what == Intervention::What::kExperts) {
      j["removal"] = removal_name(change.removal);
      j["experts"] = change.experts.size();
      if (change.experts.size() == 1) j["expert"] = change.experts[0];
      j["load_share"] = change.share;
    }
    j["damage"] = damage_values(report.damage[i]);
    json["changes"].push_back(j);
  }
  return json;
}

}  // namespace assay
