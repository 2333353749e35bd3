#include "session/session_device.h"

#include <cstdlib>

#include "base/check.h"
#include "machine/limits.h"

namespace assay {
namespace {

// Dense bf16 TFLOP/s from NVIDIA's datasheets; the first name within the device's name counts.
struct Peak {
  const char* name;
  double tflop_per_s;
};
constexpr Peak kPeaks[] = {
    {"H100 PCIe", 756}, {"H100 NVL", 835}, {"H100", 989},
    {"H200 NVL", 835},  {"H200", 989},  // GH200 too
};

// "" if the GPU can be used, else the reason why not.
std::string problem_of_gpu() {
  try {
    gpu::require_usable(gpu::device_facts());
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

constexpr const char* kVariable = "ASSAY_MATMUL_GFLOPS";

// The CPU's matrix products, measured before: measuring takes half a second, longer than the runs
// of tests. 0 if it is not given.
double given_gflop_per_s() {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double given = std::strtod(text, &end);
  if (end == text || *end != 0 || !(given > 0) || given > 1e9) {
    throw UserError(
        strprintf("%s=%s is no number of 1e9 floating-point operations a second", kVariable, text),
        "`assay doctor` measures it; without the variable every run does");
  }
  return given;
}

}  // namespace

std::string SessionDevice::name() const {
  return gpu ? "cuda: " + gpu->facts().name : "cpu";
}

SessionDevice choose_device(const std::string& device, int number) {
  SessionDevice chosen;
  if (device == "auto") chosen.why_not_gpu = problem_of_gpu();
  const bool gpu = device == "cuda" || (device == "auto" && chosen.why_not_gpu.empty());
  if (gpu) chosen.gpu = gpu::open_device(number);
  return chosen;
}

Backend backend_of(const std::string& device) {
  const bool gpu = device == "cuda" || (device == "auto" && problem_of_gpu().empty());
  return gpu ? Backend::kGpu : Backend::kCpu;
}

std::string device_name_of(const std::string& device) {
  return backend_of(device) == Backend::kGpu ? "cuda: " + gpu::device_facts().name : "cpu";
}

double peak_flop_per_s(const SessionDevice& device, Exec on, Recipe recipe) {
  if (!device.gpu) {
    if (const double given = given_gflop_per_s(); given > 0) return 1e9 * given;
    const LimitType type = recipe == Recipe::kBf16 ? LimitType::kBf16 : LimitType::kFloat;
    return 1e9 * measured_matmul_limit_gflops(on, type);
  }
  return peak_flop_per_s_of_gpu(device.gpu->facts().name);
}

std::string origin_of_peak(const SessionDevice& device) {
  if (device.gpu) return "datasheet, bf16";
  return given_gflop_per_s() > 0 ? kVariable : "measured";
}

double peak_flop_per_s_of_gpu(const std::string& name) {
  if (name.find(" MIG ") != std::string::npos) return 0;  // a part of the GPU that is named
  for (const Peak& peak : kPeaks) {
    if (name.find(peak.name) != std::string::npos) return 1e12 * peak.tflop_per_s;
  }
  return 0;
}

}  // namespace assay
