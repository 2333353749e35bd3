#include <vector>

#include "base/bf16.h"
#include "base/random.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "cuda/matmul.h"
#include "machine/gpu_timer.h"

namespace assay {

namespace {

constexpr int kThreads = 512, kRuns = 30;
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr int64_t kSide = 8192;
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

struct CopyArguments {
  gpu::Vec<uint32_t, 4>* to;
  const gpu::Vec<uint32_t, 4>* from;
  int64_t pieces;  // 16 bytes each
};

// Each thread copies every (gridDim * kThreads)-th piece of 16 bytes.
__global__ __launch_bounds__(kThreads) void copy_kernel(const __grid_constant__ CopyArguments a) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.pieces; i += stride) {
    a.to[i] = a.from[i];
  }
}

}  // namespace

double copy_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading) {
  using Piece = gpu::Vec<uint32_t, 4>;
  const gpu::DeviceBuffer from(kCopyBytes), to(kCopyBytes);
  gpu::fill(*device.context(), from.data(), 0x3C, kCopyBytes);
  const Exec on{.gpu = device.context()};
  const CopyArguments a{reinterpret_cast<Piece*>(to.data()),
                        reinterpret_cast<const Piece*>(from.data()),
                        int64_t(kCopyBytes / sizeof(Piece))};
  const auto blocks = unsigned(8 * device.facts().multiprocessors);
  const DeviceTiming t = timer.measure(
      [&](int) {
        gpu::launch(on, {.name = "copy", .grid = {blocks}, .block = {kThreads}}, copy_kernel, a);
      },
      kRuns);
  if (reading != nullptr) *reading = t.gpu;
  return 2e6 * double(kCopyBytes) / t.min_us;
}

double matmul_limit(gpu::Device& device, const DeviceTimer& timer, GpuReading* reading) {
  const size_t bytes = size_t(kSide * kSide) * sizeof(bf16);
  const gpu::DeviceBuffer a(bytes), b(bytes), d(bytes), workspace(kWorkspaceBytes);
  std::vector<bf16> random(static_cast<size_t>(kSide * kSide));
  for (size_t i = 0; i < random.size(); ++i) {
    round_to(random[i], float(random_word({1, 2, 0}, i) >> 8) * 0x1p-23f - 1.0f);
  }
  gpu::copy(*device.context(), a.data(), random.data(), bytes);
  gpu::copy(*device.context(), b.data(), random.data(), bytes);
  const Exec on{.workspace = {workspace.data(), {int64_t(kWorkspaceBytes)}},
                .gpu = device.context()};
  const gpu::Matmul p{.d = d.data(),
                      .a = a.data(),
                      .b = b.data(),
                      .m = kSide,
                      .n = kSide,
                      .k = kSide,
                      .b_form = gpu::Matmul::Form::kTransposed,
                      .operands = gpu::Element::kBf16,
                      .result = gpu::Element::kBf16};
  const DeviceTiming t = timer.measure([&](int) { gpu::matmul(on, p); }, kRuns);
  if (reading != nullptr) *reading = t.gpu;
  return 2e6 * double(kSide) * double(kSide) * double(kSide) / t.p50_us;
}

}  // namespace assay
