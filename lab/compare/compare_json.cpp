// A comparison as one JSON object.
#include <algorithm>

#include "lab/compare/compare_report.h"
#include "lab/runs/contract_horizon.h"
#include "lab/runs/summary_text.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

Json target_json(const TargetSummary& t) {
  Json json;
  json["reached"] = t.reached;
  json["runs"] = t.of;
  json["steps"] = summary_json(t.steps);
  json["tokens"] = summary_json(t.tokens);
  json["seconds"] = summary_json(t.seconds);
  json["flops"] = summary_json(t.flops);
  return json;
}

Json health_json(const HealthSummary& h) {
  Json json;
  json["text"] = h.text();
  json["pathological"] = h.collapsed > 0;
  if (!h.sparse || h.logged == 0) return json;
  json["runs"] = h.logged;
  json["collapsed_runs"] = h.collapsed;
  json["uneven_runs"] = h.uneven;
  json["restless_runs"] = h.restless;
  json["worst_layer"] = h.worst.worst_layer;
  json["worst_max_load_norm"] = h.worst.worst_max_load_norm;
  json["mean_cv_norm"] = h.worst.mean_cv_norm;
  json["min_entropy_norm"] = h.worst.min_entropy_norm;
  json["dead_share"] = h.worst.dead_share;
  json["saturated_layers"] = h.worst.saturated;
  return json;
}

Json capability_json(const CapabilitySummary& c) {
  if (c.names.empty()) return nullptr;
  Json json;
  json["names"] = c.names;
  json["value"] = summary_json(c.value);
  json["runs"] = c.scored;
  return json;
}

Json run_json(const RunRecord& run) {
  Json json;
  json["path"] = run.path;
  json["seed"] = run.config.run.seed;
  json["steps"] = run.steps_done;
  json["tokens"] = run.tokens;
  json["end"] = run.end;
  json["imported_sha256"] = nullptr;
  if (!run.imported_sha256.empty()) json["imported_sha256"] = run.imported_sha256;
  json["val_loss_nats"] = nullptr;
  if (const auto last = run.last_val()) json["val_loss_nats"] = last->value;
  return json;
}

Json curve_json(const std::vector<CurvePoint>& curve) {
  Json json = Json::array();
  for (const CurvePoint& point : curve) {
    Json at;
    at["share"] = point.fraction;
    at["step"] = nullptr;
    if (point.step > 0) at["step"] = point.step;
    at["measured_at"] = nullptr;
    if (point.loss && point.measured_at > 0) at["measured_at"] = point.measured_at;
    at["val_loss_nats"] = summary_json(point.loss);
    json.push_back(at);
  }
  return json;
}

// Of all runs where they have one, else their mean.
Json count_json(const SeedGroup& group, int64_t (*of)(const RunRecord&)) {
  const int64_t first = of(*group.runs.front());
  const auto is_first = [&](const RunRecord* run) { return of(*run) == first; };
  if (std::all_of(group.runs.begin(), group.runs.end(), is_first)) return first;
  double sum = 0;
  for (const RunRecord* run : group.runs) sum += double(of(*run));
  return sum / double(group.runs.size());
}

Json model_json(const ModelRow& row) {
  Json json;
  json["name"] = row.group.name;
  json["runs"] = Json::array();
  for (const RunRecord* run : row.group.runs) json["runs"].push_back(run_json(*run));
  json["contract"] = row.contract;
  json["horizon_steps"] = count_json(row.group, contract_horizon);
  json["active"] = row.group.audit().active;
  json["total"] = row.group.audit().total;
  json["tokens"] = count_json(row.group, [](const RunRecord& run) { return run.tokens; });
  json["val_loss_nats"] = summary_json(row.final_loss);
  json["best_val_loss_nats"] = summary_json(row.best_loss);
  json["bits_per_byte"] = summary_json(row.bits_per_byte);
  json["seconds"] = summary_json(row.seconds);
  json["capability"] = capability_json(row.capability);
  json["health"] = health_json(row.health);
  json["curve"] = curve_json(row.curve);
  json["to_target"] = nullptr;
  if (row.target) json["to_target"] = target_json(*row.target);
  json["against_first"] = nullptr;
  if (row.loss_against_first) {
    json["against_first"] = summary_json(row.loss_against_first->summary);
    json["against_first"]["seeds"] = row.loss_against_first->seeds;
  }
  json["core_rows_against_first"] = nullptr;
  if (row.core_against_first.difference) {
    json["core_rows_against_first"] = core_difference_json(*row.core_against_first.difference);
  }
  json["core_rows_absent"] = nullptr;
  if (!row.core_against_first.absent.empty()) {
    json["core_rows_absent"] = row.core_against_first.absent;
  }
  return json;
}

Json ranking_json(const Ranking& r) {
  Json json;
  json["by"] = r.by;
  json["unit"] = r.unit;
  json["places"] = Json::array();
  for (const Ranking::Place& place : r.places) {
    Json at;
    at["place"] = place.place;
    at["model"] = place.model;
    at["value"] = summary_json(place.value);
    at["note"] = place.note;
    at["minus_next"] = nullptr;
    if (place.to_next) at["minus_next"] = summary_json(place.to_next->summary);
    json["places"].push_back(at);
  }
  json["not_in_every_run"] = r.not_reached;
  return json;
}

}  // namespace

Json comparison_json(const Comparison& c) {
  Json json;
  json["sentence"] = comparison_sentence(c);
  json["incomparable"] = c.incomparable;
  json["notes"] = c.notes;
  json["confounds"] = confounds_json(c.confounds);
  json["target_loss_nats"] = nullptr;
  if (c.target_loss) json["target_loss_nats"] = *c.target_loss;
  json["landings_left_out"] = c.left_out_steps;
  json["models"] = Json::array();
  for (const ModelRow& row : c.models) json["models"].push_back(model_json(row));
  json["contract"] = nullptr;
  if (!c.contract.empty()) json["contract"] = c.contract;
  json["not_held"] = nullptr;
  if (!c.not_held.empty()) json["not_held"] = c.not_held;
  json["no_ranking"] = nullptr;
  if (!c.no_ranking.empty()) json["no_ranking"] = c.no_ranking;
  json["rankings"] = Json::array();
  for (const Ranking& r : c.rankings) json["rankings"].push_back(ranking_json(r));
  return json;
}

}  // namespace assay
