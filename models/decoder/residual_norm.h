// The norm at the beginning of every sublayer, and before the head.
#pragma once

#include <string>

#include "models/decoder/scratch.h"
#include "models/parameters/store.h"

namespace assay {

// RMSNorm with the residual addition before it, and the values that its backward needs.
template <typename T>
struct ResidualNorm {
  View<const float, 1> weight;  // (C)
  View<float, 1> dweight;       // (C)
  View<T, 2> resid, y;          // (N, C)
  View<float, 1> rstd;          // (N)
  float eps = 0;

  void plan(MemoryPlan& plan, const std::string& name, const ModelConfig& config, int64_t tokens);
  void bind(const ParameterStore<T>& store, const std::string& name);
  // amax: amax slot of y; empty if no product needs it.
  void forward(Exec on, const ResidualStream<T>& in, int64_t tokens,
               View<float, 1> amax = {}) const;
  // `in` as in forward. s.dresid or s.dbranch becomes the gradient of its branch.
  void backward(Exec on, const Scratch<T>& s, const ResidualStream<T>& in, int64_t tokens) const;
};

}  // namespace assay
