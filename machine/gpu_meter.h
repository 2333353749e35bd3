// Clock, power, energy and free memory of a GPU, from NVML. That library belongs to the driver
// and is opened at run time; where it or a figure is missing, readings have no value.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace assay {

struct GpuReading {
  std::optional<int> sm_mhz;
  std::optional<double> watts;  // the driver's mean over about a second
  // What holds the clock down: "", or some of power, heat, other, with a + between them.
  std::optional<std::string> slowed_by;
};
// As fields of a JSON object: "sm_mhz": 1755, "watts": 690.1, "slowed_by": "power". Without a value
// null.
std::string json_fields(const GpuReading& reading);

class GpuMeter {
 public:
  // bus: the GPU's PCI address (gpu::DeviceFacts::bus). library: the name of NVML's, or a path.
  explicit GpuMeter(const std::string& bus, const std::string& library = "libnvidia-ml.so.1");
  const std::string& problem() const { return problem_; }  // why no reading has a value; "": none
  GpuReading read() const;
  // Used since its driver was loaded, by whoever uses the GPU; no value before Volta and on a part
  // of a GPU (MIG).
  std::optional<double> joules() const;
  // Memory that no program uses, of the whole GPU on a part (MIG). Asking CUDA would take some.
  std::optional<int64_t> free_bytes() const;

 private:
  using Handle = void*;
  Handle device_ = nullptr;
  int (*clock_)(Handle device, unsigned type, unsigned* mhz) = nullptr;
  int (*power_)(Handle device, unsigned* milliwatts) = nullptr;
  int (*reasons_)(Handle device, unsigned long long* bits) = nullptr;
  int (*energy_)(Handle device, unsigned long long* millijoules) = nullptr;
  struct Memory {
    unsigned long long total, free, used;
  };
  int (*memory_)(Handle device, Memory* bytes) = nullptr;
  std::string problem_;
};

// Says on stderr why there are no readings, if so.
void say_problem(const GpuMeter& meter);

// Readings of a meter every 20 ms, by a thread of its own, until end(). The meter outlives it.
class GpuTrace {
 public:
  explicit GpuTrace(const GpuMeter& meter);
  ~GpuTrace();
  GpuTrace(const GpuTrace&) = delete;
  GpuTrace& operator=(const GpuTrace&) = delete;
  // The median clock, the mean power, and every reason that was met.
  GpuReading end();

 private:
  void stop();
  const GpuMeter& meter_;
  std::atomic<bool> stopping_ = false;
  std::vector<GpuReading> readings_;  // of the thread until it has ended
  std::thread thread_;
};
GpuReading summary(const std::vector<GpuReading>& readings);  // of end(); without readings no value

}  // namespace assay
