// The gap over training: the difference of a row's validation loss to the first row's at equal
// shares of the runs, seed by seed, and its trend. Where a row has no evaluation at a share, its
// loss is read between two near ones (lab/runs/value_at_share.h), and the point is marked.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/summary.h"

namespace assay {

struct GapPoint {
  double share = 0;           // of run.steps
  Summary gap;                // nats, over the seeds that both rows have there
  bool interpolated = false;  // a loss was read between two evaluations
};

struct GapCurve {
  const SummaryRow* row = nullptr;
  std::vector<GapPoint> points;  // where the first row was evaluated and every run has a loss
  // Change of the gap per doubling of the tokens: the difference of the rows' val_loss_trend
  // (lab/runs/run_measures.h).
  std::optional<Summary> trend;
};

// Of every row but the first that has points. Empty where runs stop at a target: they end at
// different shares.
std::vector<GapCurve> gap_curves(const ContractTable& table);

// A table of up to eight shares; "" without curves.
std::string gap_markdown(const ContractTable& table);

}  // namespace assay
