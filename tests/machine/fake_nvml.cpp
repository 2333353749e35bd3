// NVML's interface without a GPU, for GpuMeter: one device at 0000:17:00.0. As the driver's, it
// refuses everything before nvmlInit_v2. Its clock falls with every reading; its energy grows by
// 1.5 J.
#include <cstring>

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6;
bool initialised = false;
int device = 0;
unsigned reads = 0;
unsigned long long energy_reads = 0;

int status_of(const void* which) {
  if (!initialised) return kUninitialized;
  return which == &device ? kSuccess : kInvalidArgument;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  initialised = true;
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** out) {
  if (!initialised) return kUninitialized;
  if (std::strcmp(bus, "0000:17:00.0") != 0) return kNotFound;
  *out = &device;
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* which, unsigned type, unsigned* mhz) {
  if (type != 1) return kInvalidArgument;  // another clock than the SMs'
  *mhz = 1980 - 15 * reads++;
  return status_of(which);
}

int nvmlDeviceGetPowerUsage(void* which, unsigned* milliwatts) {
  *milliwatts = 698750;
  return status_of(which);
}

int nvmlDeviceGetTotalEnergyConsumption(void* which, unsigned long long* millijoules) {
  *millijoules = 5'000'000'000'000 + 1500 * ++energy_reads;
  return status_of(which);
}

int nvmlDeviceGetMemoryInfo(void* which, unsigned long long* total_free_used) {
  const unsigned long long bytes[] = {140ull << 30, 100ull << 30, 40ull << 30};
  std::memcpy(total_free_used, bytes, sizeof bytes);
  return status_of(which);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* which, unsigned long long* bits) {
  *bits = 0x4 | 0x40;
  return status_of(which);
}
}
