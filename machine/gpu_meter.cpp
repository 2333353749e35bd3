#include "machine/gpu_meter.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <type_traits>

#include "base/check.h"
#include "cuda/shared_library.h"

namespace assay {

namespace {

// NVML's numbers, which never change: the type of the SM clock, and reasons for a lower clock.
constexpr unsigned kSmClock = 1;
constexpr unsigned long long kIdle = 0x1;
constexpr unsigned long long kPower = 0x4 | 0x80;  // the power cap, the power brake
constexpr unsigned long long kHeat = 0x20 | 0x40;  // by the driver, by the hardware
constexpr int kSuccess = 0;
constexpr const char* kReasonNames[] = {"power", "heat", "other"};

std::string joined(const bool (&met)[3]) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    if (met[i]) text += (text.empty() ? "" : "+") + std::string(kReasonNames[i]);
  }
  return text;
}

std::string reasons_in_words(unsigned long long bits) {
  return joined(
      {(bits & kPower) != 0, (bits & kHeat) != 0, (bits & ~(kPower | kHeat | kIdle)) != 0});
}

}  // namespace

std::string json_fields(const GpuReading& reading) {
  return "\"sm_mhz\": " + (reading.sm_mhz ? std::to_string(*reading.sm_mhz) : "null") +
         ", \"watts\": " + (reading.watts ? strprintf("%.1f", *reading.watts) : "null") +
         ", \"slowed_by\": " + (reading.slowed_by ? "\"" + *reading.slowed_by + "\"" : "null");
}

GpuMeter::GpuMeter(const std::string& bus, const std::string& library) {
  const gpu::SharedLibrary opened = gpu::open_shared_library(library, {});
  if (opened.handle == nullptr) {
    problem_ = library + " cannot be loaded (" + opened.problem + ")";
    return;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened.handle, symbol));
    return function != nullptr;
  };
  int (*initialise)() = nullptr;
  int (*device_at)(const char* bus, Handle* device) = nullptr;
  if (!find(initialise, "nvmlInit_v2") || !find(device_at, "nvmlDeviceGetHandleByPciBusId_v2")) {
    problem_ = library + " has no nvmlInit_v2 or no nvmlDeviceGetHandleByPciBusId_v2";
    return;
  }
  int status = initialise();
  if (status == kSuccess) status = device_at(bus.c_str(), &device_);
  if (status != kSuccess) {
    problem_ = strprintf("%s answers %d for the GPU at %s", library.c_str(), status, bus.c_str());
    return;
  }
  find(clock_, "nvmlDeviceGetClockInfo");
  find(power_, "nvmlDeviceGetPowerUsage");
  find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(energy_, "nvmlDeviceGetTotalEnergyConsumption");
  find(memory_, "nvmlDeviceGetMemoryInfo");
}

GpuReading GpuMeter::read() const {
  GpuReading reading;
  if (!problem_.empty()) return reading;
  unsigned value = 0;
  unsigned long long bits = 0;
  if (clock_ != nullptr && clock_(device_, kSmClock, &value) == kSuccess) {
    reading.sm_mhz = int(value);
  }
  if (power_ != nullptr && power_(device_, &value) == kSuccess) {
    reading.watts = 1e-3 * double(value);
  }
  if (reasons_ != nullptr && reasons_(device_, &bits) == kSuccess) {
    reading.slowed_by = reasons_in_words(bits);
  }
  return reading;
}

std::optional<double> GpuMeter::joules() const {
  unsigned long long millijoules = 0;
  if (!problem_.empty() || energy_ == nullptr) return std::nullopt;
  if (energy_(device_, &millijoules) != kSuccess) return std::nullopt;
  return 1e-3 * double(millijoules);
}

std::optional<int64_t> GpuMeter::free_bytes() const {
  Memory bytes = {};
  if (!problem_.empty() || memory_ == nullptr) return std::nullopt;
  if (memory_(device_, &bytes) != kSuccess) return std::nullopt;
  return int64_t(bytes.free);
}

void say_problem(const GpuMeter& meter) {
  if (meter.problem().empty()) return;
  std::fprintf(stderr, "no clock and power of the GPU: %s\n", meter.problem().c_str());
}

GpuTrace::GpuTrace(const GpuMeter& meter) : meter_(meter) {
  if (!meter.problem().empty()) return;
  thread_ = std::thread([this] {
    do {
      readings_.push_back(meter_.read());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (!stopping_);
  });
}

void GpuTrace::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

GpuTrace::~GpuTrace() {
  stop();
}

GpuReading GpuTrace::end() {
  stop();
  return summary(readings_);
}

GpuReading summary(const std::vector<GpuReading>& readings) {
  GpuReading all;
  std::vector<int> clocks;
  double watts = 0;
  int64_t powers = 0;
  bool met[3] = {}, any = false;
  for (const GpuReading& r : readings) {
    if (r.sm_mhz) clocks.push_back(*r.sm_mhz);
    if (r.watts) watts += *r.watts, ++powers;
    if (!r.slowed_by) continue;
    any = true;
    for (int i = 0; i < 3; ++i) met[i] |= r.slowed_by->find(kReasonNames[i]) != std::string::npos;
  }
  std::sort(clocks.begin(), clocks.end());
  if (!clocks.empty()) all.sm_mhz = clocks[clocks.size() / 2];
  if (powers > 0) all.watts = watts / double(powers);
  if (any) all.slowed_by = joined(met);
  return all;
}

}  // namespace assay
