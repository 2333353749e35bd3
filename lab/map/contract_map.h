// The contract map (`assay map`): which of two models is ahead at each budget on each axis of cost,
// and where the order turns.
//
// A contract holds one axis fixed; this asks all of them at once, of the same endpoints.
// Differences are taken seed by seed, with Student's 95% interval (lab/runs/statistics.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/map/crossing.h"
#include "lab/map/endpoints.h"

namespace assay {

struct MapPair {
  size_t first = 0, second = 0;  // models; differences are second - first
  std::string absent;            // why the two are not compared on this axis; "" if they are
  std::vector<std::string> notes;
  PairOnAxis on;
};

struct MapAxis {
  CostAxis axis = CostAxis::kTokens;
  std::string absent;  // why it has no pair; "" if one is compared
  std::vector<MapPair> pairs;
};

struct ContractMap {
  MapMeasure measure = MapMeasure::kValLoss;
  EndpointSet set;
  std::vector<MapAxis> axes;  // those that were asked for
  Better better() const { return measure == MapMeasure::kCore ? Better::kHigher : Better::kLower; }
};

ContractMap contract_map(EndpointSet set, MapMeasure measure, const std::vector<CostAxis>& axes);

// The model's endpoints that have this cost, a curve per seed, by ascending seed.
std::vector<SeedCurve> curves_of(const MapModel& model, CostAxis axis);
// Why seconds or joules of these two are not one quantity; "" if they are, and on other axes.
std::string other_machine(const MapModel& a, const MapModel& b, CostAxis axis);

// "moe ahead at 2 of 3 budgets, 1 undecided".
std::string budgets_text(const ContractMap& map, const MapPair& pair);
// "turns at 1.2e+06 [1e+06, 1.4e+06], then dense is ahead", "no crossing in [1e+06, 4e+06]".
std::string crossing_text(const ContractMap& map, CostAxis axis, const MapPair& pair);
// A budget in at most 4 digits: "1.229e+06", "82.3".
std::string cost_text(double cost);
std::string measure_title(MapMeasure measure);  // "validation loss (nats per token)"

// The first row has the heads; "" where a model lacks the value.
std::vector<std::vector<std::string>> model_rows(const ContractMap& map);

std::string map_text(const ContractMap& map);
nlohmann::ordered_json map_json(const ContractMap& map);

}  // namespace assay
