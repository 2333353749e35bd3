// The least memory traffic and arithmetic of a call: every input is read once, every output written
// once. The profiler and the benchmarks share one cost function per op, so estimates cannot drift.
#pragma once

namespace assay {

struct Cost {
  double bytes = 0;
  double flops = 0;
};

inline Cost operator+(Cost a, Cost b) {
  return {a.bytes + b.bytes, a.flops + b.flops};
}

}  // namespace assay
