// Where the tests of the wrappers run: on the SIMT emulator, under several schedules, or on a GPU.
// The program is linked with one of machine_simt.cpp and machine_gpu.cpp.
#pragma once

#include <functional>
#include <vector>

#include "cuda/context.h"
#include "cuda/exec.h"
#include "cuda/transfer.h"

namespace assay::test {

// Ends the program with an error and a hint where there is no GPU to use.
Exec machine();
// The emulator of a GPU of that capability; null on a GPU, which has its own.
gpu::Context* emulated(int capability);
// Calls `body` for each of some schedules, on a GPU once.
void under_schedules(const std::function<void()>& body);

// An array in device memory, with copies from and to the host.
template <typename T>
class MachineArray {
 public:
  explicit MachineArray(size_t n) : size_(n), data_(static_cast<T*>(allocate(n * sizeof(T)))) {}
  explicit MachineArray(const std::vector<T>& from) : MachineArray(from.size()) {
    copy_bytes(machine(), data_, from.data(), size_ * sizeof(T));
    wait(machine());
  }
  ~MachineArray() { machine().gpu->memory->release(data_, gpu::Place::kDevice); }
  MachineArray(const MachineArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    copy_bytes(machine(), out.data(), data_, size_ * sizeof(T));
    wait(machine());
    return out;
  }

 private:
  static void* allocate(size_t bytes) {
    return machine().gpu->memory->allocate(bytes, gpu::Place::kDevice);
  }
  size_t size_;
  T* data_;
};

}  // namespace assay::test
