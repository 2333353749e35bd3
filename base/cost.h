// What a call moves and computes at least: every input read once, every output written once. The
// profiler, the benchmarks and the comments use the same function, so the estimate cannot drift.
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
