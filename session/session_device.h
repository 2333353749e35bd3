// Where a run trains: the GPU or the CPU, as chosen by --device.
#pragma once

#include <memory>
#include <string>

#include "cuda/device.h"
#include "models/decoder/decoder.h"

namespace assay {

struct SessionDevice {
  std::unique_ptr<gpu::Device> gpu;  // null: the CPU
  std::string why_not_gpu;           // why "auto" chose the CPU

  Backend backend() const { return gpu ? Backend::kGpu : Backend::kCpu; }
  gpu::Context* context() const { return gpu ? gpu->context() : nullptr; }
  std::string name() const;  // "cpu", "cuda: NVIDIA H200"
};

// device: "cpu", "cuda" (UserError if no GPU is usable) or "auto" (the GPU if one is usable; one
// that another process has is an error here too, or a matrix would mix runs of both).
// number: which of the GPUs.
SessionDevice choose_device(const std::string& device, int number = 0);
// The backend that choose_device() would choose, without opening a GPU. "cuda" is not checked.
Backend backend_of(const std::string& device);
// SessionDevice::name() of what choose_device() would choose, without opening a GPU.
std::string device_name_of(const std::string& device);

// FLOP/s that mfu is a fraction of: on a GPU the datasheet's dense bf16 peak, 0 if unknown; on a
// CPU the limit of matrix products, measured now or given by ASSAY_MATMUL_GFLOPS.
double peak_flop_per_s(const SessionDevice& device, Exec on, Recipe recipe);
// Where that is from: "datasheet, bf16" on a GPU, "measured" or "ASSAY_MATMUL_GFLOPS" on a CPU.
std::string origin_of_peak(const SessionDevice& device);
// That of the GPU with this name; 0 also of an instance of a divided one (MIG).
double peak_flop_per_s_of_gpu(const std::string& name);

}  // namespace assay
