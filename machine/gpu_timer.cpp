#include "machine/gpu_timer.h"

#include <algorithm>
#include <vector>

namespace assay {

namespace {

constexpr int kWarmUps = 3;
constexpr size_t kHeadStartBytes = size_t{512} << 20;
constexpr int kHeadStartFills = 12;  // 2 ms on a GPU that writes 3 TB/s

}  // namespace

DeviceTimer::DeviceTimer(gpu::Device& device) : device_(device), head_start_(kHeadStartBytes) {}

DeviceTiming DeviceTimer::measure(const std::function<void(int)>& run, int runs) const {
  const gpu::Context& on = *device_.context();
  for (int i = 0; i < kWarmUps; ++i) run(i);
  device_.wait();
  std::vector<gpu::Event> events(static_cast<size_t>(runs) + 1);
  for (int i = 0; i < kHeadStartFills; ++i) {
    gpu::fill(on, head_start_.data(), i, head_start_.bytes());
  }
  for (int i = 0; i < runs; ++i) {
    events[static_cast<size_t>(i)].record(on);
    run(kWarmUps + i);
  }
  events.back().record(on);
  device_.wait();
  std::vector<double> us;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    us.push_back(events[i + 1].microseconds_since(events[i]));
  }
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[0], runs};
}

}  // namespace assay
