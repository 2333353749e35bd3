// Times GPU work with CUDA events between runs that are queued ahead of the device.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>

#include "cuda/device.h"
#include "machine/gpu_meter.h"

namespace assay {

struct DeviceTiming {
  double p50_us = 0, min_us = 0;
  int runs = 0;
  GpuReading gpu;  // after half of the runs
};

class DeviceTimer {
 public:
  // heat_s: the seconds of work before the timed runs; without it the timed runs of what is bound
  // by power are those of a cold card, 10 to 15% too fast. meter: null, or what `gpu` is read from.
  explicit DeviceTimer(gpu::Device& device, double heat_s = 0, const GpuMeter* meter = nullptr);
  // run(i) queues the i-th run. The runs that heat, at least three, are not counted. The device
  // gets a long task before the timed runs, so that the host stays ahead and it never waits for a
  // launch.
  DeviceTiming measure(const std::function<void(int)>& run, int runs) const;
  double heat_s() const { return heat_s_; }

 private:
  int heat(const std::function<void(int)>& run) const;  // returns the number of runs
  gpu::Device& device_;
  const double heat_s_;
  const GpuMeter* const meter_;
  gpu::DeviceBuffer head_start_;
};

// A measured rate of this GPU, in bytes or operations a second: by the median of the runs, as the
// times that are compared with it, and by the fastest.
struct GpuLimit {
  double p50 = 0, most = 0;
  GpuReading gpu = {};  // of the DeviceTiming
};
constexpr double kHeatSecondsOfLimits = 1;
// The denominators of reported shares: bytes/s read plus written by a copy kernel over 1 GiB, and
// FLOP/s of bf16 products of 8192^3 by cuBLASLt on random data.
GpuLimit copy_limit(gpu::Device& device, const DeviceTimer& timer);
GpuLimit matmul_limit(gpu::Device& device, const DeviceTimer& timer);
// Two more, for the experts' products: bytes/s read from L2; bytes/s of floats that the memory adds
// (reduce_add) to 1 GiB, which none does before compute capability 9.0.
GpuLimit l2_read_limit(gpu::Device& device, const DeviceTimer& timer);
std::optional<GpuLimit> add_limit(gpu::Device& device, const DeviceTimer& timer);
// What l2_read_limit() reads: half of the L2, 24 MiB at most (half of an H100's), in whole reads.
inline size_t l2_read_bytes(const gpu::DeviceFacts& facts) {
  return size_t(std::min(facts.l2_bytes / 2, int64_t{24} << 20)) / 16 * 16;
}

}  // namespace assay
