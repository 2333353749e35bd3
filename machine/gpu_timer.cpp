#include "machine/gpu_timer.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/median.h"

namespace assay {

namespace {

constexpr int kWarmUps = 3, kMostQueued = 512;
constexpr std::chrono::milliseconds kBatchTime(20);
constexpr size_t kHeadStartBytes = size_t{512} << 20;
constexpr int kHeadStartFills = 12;  // 2 ms on a GPU that writes 3 TB/s

}  // namespace

DeviceTimer::DeviceTimer(gpu::Device& device, double heat_s, const GpuMeter* meter)
    : device_(device), heat_s_(heat_s), meter_(meter), head_start_(kHeadStartBytes) {}

int DeviceTimer::heat(const std::function<void(int)>& run) const {
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> wanted(heat_s_);
  const auto start = Clock::now();
  int runs = 0;
  for (int batch = kWarmUps;; batch = std::min(2 * batch, kMostQueued)) {
    const auto begin = Clock::now();
    for (int i = 0; i < batch; ++i) run(runs++);
    device_.wait();
    const auto end = Clock::now();
    if (end - start >= wanted) return runs;
    // Long enough that the wait between two batches does not cool it.
    if (end - begin >= kBatchTime) batch /= 2;
  }
}

DeviceTiming DeviceTimer::measure(const std::function<void(int)>& run, int runs) const {
  const gpu::Context& on = *device_.context();
  const int heated = heat(run);
  std::vector<gpu::Event> events(static_cast<size_t>(runs) + 1);
  for (int i = 0; i < kHeadStartFills; ++i) {
    gpu::fill(on, head_start_.data(), i, head_start_.bytes());
  }
  for (int i = 0; i < runs; ++i) {
    events[static_cast<size_t>(i)].record(on);
    run(heated + i);
  }
  events.back().record(on);
  GpuReading reading;
  if (meter_ != nullptr) {
    events[events.size() / 2].wait();
    reading = meter_->read();
  }
  device_.wait();
  std::vector<double> us;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    us.push_back(events[i + 1].microseconds_since(events[i]));
  }
  std::sort(us.begin(), us.end());
  return {median(us), us[0], runs, reading};
}

}  // namespace assay
