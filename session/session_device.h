// Where a run trains, as --device says: the GPU or the CPU.
#pragma once

#include <memory>
#include <string>

#include "cuda/device.h"
#include "models/decoder/decoder.h"

namespace assay {

struct SessionDevice {
  std::unique_ptr<gpu::Device> gpu;  // null: the CPU
  std::string why_not_gpu;           // of auto on the CPU

  Backend backend() const { return gpu ? Backend::kGpu : Backend::kCpu; }
  gpu::Context* context() const { return gpu ? gpu->context() : nullptr; }
  std::string name() const;  // "cpu", "cuda: NVIDIA H200"
};

// "cpu"; "cuda", a UserError where it cannot be; "auto", the GPU where one can be used.
SessionDevice choose_device(const std::string& device);
// The backend that choose_device() would find, without opening a GPU; "cuda" needs none.
Backend backend_of(const std::string& device);
// SessionDevice::name() of what choose_device() would find, likewise.
std::string device_name_of(const std::string& device);

// What mfu is a share of: on a GPU the datasheet's dense bf16 peak, 0 where it is not known; on a
// CPU the measured limit of matrix products.
double peak_flop_per_s(const SessionDevice& device, Exec on, Recipe recipe);

}  // namespace assay
