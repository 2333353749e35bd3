// Tables of a matrix whose runs have planted losses and loads, for tests of what is made of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/claim.h"
#include "lab/matrix/summary.h"
#include "tests/lab/run_records.h"

namespace assay::planted_measures {

// The measures of a run's layers 1, 2 and 3, as its telemetry would give them.
struct Planted {
  std::string model;
  int64_t seed;
  double loss;
  double load;                               // K max_load of layer 3; the others have half of it
  std::optional<int64_t> saturated_at = {};  // of layer 3
};

inline RunRecord run_of(const Planted& planted) {
  RunRecord run =
      hand_made({.name = planted.model + "-seed" + std::to_string(planted.seed),
                 .seed = planted.seed,
                 .val_loss_nats = {{50, planted.loss + 1, 10}, {100, planted.loss, 10}}});
  std::vector<LayerHealth> layers;
  for (int64_t layer = 1; layer <= 3; ++layer) {
    LayerHealth& l = layers.emplace_back();
    l.layer = layer;
    l.max_load_norm = layer == 3 ? planted.load : planted.load / 2;
    l.active_norm = 0.25;
    l.cv_norm = planted.load;
    l.steps = StepLoads{
        .cv = 50.0 * double(layer), .cv_floor = 20, .max_load_norm = planted.load, .swing = 125};
  }
  layers[2].saturated_at = planted.saturated_at;
  run.health = health_of(layers, 64, 8);
  return run;
}

// One table with a row per model, each with its runs.
struct Table {
  std::vector<RunRecord> runs;
  std::vector<Cell> cells;
  std::vector<ContractTable> tables;

  Table(const std::vector<std::string>& models, const std::vector<Planted>& planted) {
    for (const Planted& p : planted) runs.push_back(run_of(p));
    for (const std::string& model : models) {
      Cell& cell = cells.emplace_back();
      cell.model = model;
      cell.contract = "steps";
      cell.precision = "bf16";
    }
    ContractTable& table = tables.emplace_back();
    table.contract.name = "steps";
    for (const Cell& cell : cells) {
      SummaryRow& row = table.rows.emplace_back();
      row.cell = &cell;
      row.planned = 3;
      for (size_t i = 0; i < planted.size(); ++i) {
        if (planted[i].model == cell.model) row.runs.runs.push_back(&runs[i]);
      }
    }
  }
};

// The models "even" and "full" have three seeds, "one" has one, "none" has none.
inline Table planted_table() {
  return Table({"full", "even", "one", "none"}, {{"full", 1, 4.00, 0.90, 40},
                                                 {"full", 2, 4.30, 0.92, 60},
                                                 {"full", 3, 4.10, 0.94, 20},
                                                 {"even", 1, 3.90, 0.30},
                                                 {"even", 2, 4.21, 0.32},
                                                 {"even", 3, 4.02, 0.31, 80},
                                                 {"one", 2, 4.00, 0.10}});
}

inline MatrixClaim claim(const std::string& measure, const std::string& of,
                         MatrixClaim::Relation relation, const std::string& other, double number,
                         double within = 0) {
  MatrixClaim c;
  c.name = "c";
  c.measure = measure;
  c.of = of;
  c.relation = relation;
  c.other = other;
  c.number = number;
  c.within = within;
  return c;
}

// Two models under two contracts in two precisions, three seeds; loss(contract, model, precision)
// plus a tenth of the seed at the end, and 1 more at half of the run.
struct Grid {
  std::vector<RunRecord> runs;
  std::vector<Cell> cells;
  std::vector<ContractTable> tables;

  template <typename Loss>
  explicit Grid(const Loss& loss) {
    runs.reserve(24);
    cells.reserve(8);
    for (const char* contract : {"activeDN", "totalDN"}) {
      ContractTable& table = tables.emplace_back();
      table.contract.name = contract;
      for (const char* model : {"dense", "moe"}) {
        for (const char* precision : {"bf16", "nvfp4"}) {
          Cell& cell = cells.emplace_back();
          cell.model = model;
          cell.contract = contract;
          cell.precision = precision;
          SummaryRow& row = table.rows.emplace_back();
          row.cell = &cell;
          row.planned = 3;
          for (int64_t seed = 1; seed <= 3; ++seed) {
            const double end =
                loss(std::string(contract), std::string(model), std::string(precision), seed);
            runs.push_back(hand_made(
                {.name = "r",
                 .seed = seed,
                 .val_loss_nats = {{50, end + (model[0] == 'm' ? 1.5 : 1), 10}, {100, end, 10}}}));
            row.runs.runs.push_back(&runs.back());
          }
        }
      }
    }
  }
};

}  // namespace assay::planted_measures
