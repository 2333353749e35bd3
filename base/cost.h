// The least memory traffic and arithmetic of a call: every input is read once, every output written
// once, what is added to is read and written. Where indices choose rows of a table, as many rows
// count as there are indices, but no more than the table has: a shape does not say which repeat. Of
// a weight and its packed copy the weight counts. The profiler and the benchmarks share one cost
// function per op, so estimates cannot drift; the checks of the ops compare it with the buffers of
// every case (tests/ops/op_run.cpp).
#pragma once

#include "base/view.h"

namespace assay {

struct Cost {
  double bytes = 0;
  double flops = 0;
};

inline Cost operator+(Cost a, Cost b) {
  return {a.bytes + b.bytes, a.flops + b.flops};
}

// Bytes of views, which count nothing where they have no memory, whatever their shape.
template <typename... Views>
double view_bytes(const Views&... views) {
  return (0.0 + ... + (views.empty() ? 0.0 : double(views.bytes())));
}

// Bytes of the rows of `table` that `indices` indices choose.
template <typename T>
double chosen_bytes(const View<T, 2>& table, int64_t indices) {
  if (table.empty()) return 0;
  const int64_t rows = indices < table.dim[0] ? indices : table.dim[0];
  return double(rows) * double(table.dim[1]) * double(sizeof(T));
}

}  // namespace assay
