// Times GPU work with CUDA events between runs that are queued ahead of the device.
#pragma once

#include <functional>

#include "cuda/device.h"

namespace assay {

struct DeviceTiming {
  double p50_us = 0, min_us = 0;
  int runs = 0;
};

class DeviceTimer {
 public:
  explicit DeviceTimer(gpu::Device& device);
  // run(i) queues the i-th run. The first three runs are warm-up and not counted. The device gets a
  // long task before the timed runs, so that the host stays ahead and it never waits for a launch.
  DeviceTiming measure(const std::function<void(int)>& run, int runs) const;

 private:
  gpu::Device& device_;
  gpu::DeviceBuffer head_start_;
};

// Measured limits of this GPU, the denominators of reported shares: bytes/s read plus written by a
// copy kernel, and FLOP/s of bf16 products of 8192^3 by cuBLASLt on random data.
double copy_limit(gpu::Device& device, const DeviceTimer& timer);
double matmul_limit(gpu::Device& device, const DeviceTimer& timer);

}  // namespace assay
