// How long the GPU takes: CUDA events between the runs, which are queued ahead of it.
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
  // run(i) queues the i-th run. The device is given something long to do first, so that the host
  // stays ahead and no launch is waited for; the first runs are not counted.
  DeviceTiming measure(const std::function<void(int)>& run, int runs) const;

 private:
  gpu::Device& device_;
  gpu::DeviceBuffer head_start_;
};

// The two limits of this GPU that shares are given of, both measured: bytes read and written a
// second by a copy kernel, and bf16 products of 8192^3 by cuBLASLt on random data.
double copy_limit(gpu::Device& device, const DeviceTimer& timer);
double matmul_limit(gpu::Device& device, const DeviceTimer& timer);

}  // namespace assay
