// A router analysis made by hand, for a test to modify.
#pragma once

#include "lab/router/analysis.h"

namespace assay {

// Of a healthy run that trains on: one layer, K = 4 of 64 experts.
inline RouterAnalysis healthy_analysis() {
  RouterAnalysis a;
  a.experts = 64;
  a.top_k = 4;
  a.window = 100;
  a.logged = a.last_step = 400;
  a.planned_steps = 1000;
  a.turnover_floor = 0.01;
  RouterLayer layer;
  layer.layer = 3;
  layer.max_load_norm = 0.1;
  layer.active_norm = 1;
  layer.turnover = 0.012;
  layer.entropy_norm = 0.99;
  a.layers.push_back(layer);
  return a;
}

}  // namespace assay
