// Helpers to run a test's kernels under many schedules.
#pragma once

#include <vector>

#include "cuda/simt/memory.h"
#include "cuda/simt/run_grid.h"

namespace assay::test {

inline std::vector<simt::Schedule> some_schedules() {
  std::vector<simt::Schedule> all = {{simt::Order::kForward}, {simt::Order::kReverse}};
  for (uint64_t seed = 1; seed <= 6; ++seed) all.push_back({simt::Order::kRandom, seed});
  return all;
}

// An array in device memory, with copies from and to the host.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n, size_t alignment = 16)
      : size_(n), data_(static_cast<T*>(simt::device_malloc(n * sizeof(T), alignment))) {}
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.size()) {
    simt::device_copy(data_, from.data(), size_ * sizeof(T));
  }
  ~DeviceArray() { simt::device_free(data_); }
  DeviceArray(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    simt::device_copy(out.data(), data_, size_ * sizeof(T));
    return out;
  }

 private:
  size_t size_;
  T* data_;
};

}  // namespace assay::test
