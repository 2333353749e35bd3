// Times GPU work with CUDA events between runs that are queued ahead of the device.
#pragma once

#include <functional>

#include "cuda/device.h"
#include "machine/gpu_meter.h"

namespace assay {

struct DeviceTiming {
  double p50_us = 0, min_us = 0;
  int runs = 0;
  GpuReading gpu;  // in the middle of the runs
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

 private:
  int heat(const std::function<void(int)>& run) const;  // returns the number of runs
  gpu::Device& device_;
  const double heat_s_;
  const GpuMeter* const meter_;
  gpu::DeviceBuffer head_start_;
};

// Measured limits of this GPU, the denominators of reported shares: bytes/s read plus written by a
// copy kernel, and FLOP/s of bf16 products of 8192^3 by cuBLASLt on random data. reading: null, or
// where the clock and the power meanwhile are put.
double copy_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading = nullptr);
double matmul_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading = nullptr);
// Two more, for the experts' products: bytes/s read from L2, of 24 MiB; bytes/s of floats that the
// memory adds (reduce_add) to 1 GiB, 0 before compute capability 9.0.
double l2_read_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading = nullptr);
double add_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading = nullptr);

}  // namespace assay
