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

constexpr int kL2Passes = 64;

// Each pass reads all pieces, past L1. `sum` gets what nobody needs, so that the reads stay.
struct L2Arguments {
  const uint4* from;
  uint32_t* sum;
  int64_t pieces;
};
__global__ __launch_bounds__(kThreads) void l2_read_kernel(const __grid_constant__ L2Arguments a) {
  constexpr int kInFlight = 4;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  uint32_t sum = 0;
  for (int pass = 0; pass < kL2Passes; ++pass) {
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.pieces;
         i += kInFlight * stride) {
      uint4 piece[kInFlight] = {};
#pragma unroll
      for (int k = 0; k < kInFlight; ++k)
        if (i + k * stride < a.pieces) piece[k] = __ldcg(a.from + i + k * stride);
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) sum ^= piece[k].x ^ piece[k].y ^ piece[k].z ^ piece[k].w;
    }
  }
  if (sum == 0x12345678) *a.sum = sum;
}

// Each thread adds 1 to every (gridDim * kThreads)-th four floats.
struct AddArguments {
  float* to;
  int64_t count;
};
__global__ __launch_bounds__(kThreads) void add_kernel(const __grid_constant__ AddArguments a) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * 4;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 4; i < a.count; i += stride) {
    gpu::reduce_add(a.to + i, {{1, 1, 1, 1}});
  }
}

// work: bytes or operations of a run.
GpuLimit limit_of(double work, const DeviceTiming& t) {
  return {.p50 = 1e6 * work / t.p50_us, .most = 1e6 * work / t.min_us, .gpu = t.gpu};
}

}  // namespace

GpuLimit l2_read_limit(gpu::Device& device, const DeviceTimer& timer) {
  const size_t bytes = l2_read_bytes(device.facts());
  const gpu::DeviceBuffer from(bytes), sum(sizeof(uint32_t));
  gpu::fill(*device.context(), from.data(), 0x3C, bytes);
  const Exec on{.gpu = device.context()};
  const L2Arguments a{reinterpret_cast<const uint4*>(from.data()),
                      reinterpret_cast<uint32_t*>(sum.data()), int64_t(bytes / sizeof(uint4))};
  const auto blocks = unsigned(4 * device.facts().multiprocessors);
  const DeviceTiming t = timer.measure(
      [&](int) {
        gpu::launch(on, {.name = "l2_read", .grid = {blocks}, .block = {kThreads}}, l2_read_kernel,
                    a);
      },
      kRuns);
  return limit_of(double(bytes) * kL2Passes, t);
}

std::optional<GpuLimit> add_limit(gpu::Device& device, const DeviceTimer& timer) {
  if (device.facts().capability < 90) return std::nullopt;
  const gpu::DeviceBuffer to(kCopyBytes);
  gpu::fill(*device.context(), to.data(), 0, kCopyBytes);
  const Exec on{.gpu = device.context()};
  const AddArguments a{reinterpret_cast<float*>(to.data()), int64_t(kCopyBytes / sizeof(float))};
  const auto blocks = unsigned(8 * device.facts().multiprocessors);
  const DeviceTiming t = timer.measure(
      [&](int) {
        gpu::launch(on, {.name = "add", .grid = {blocks}, .block = {kThreads}}, add_kernel, a);
      },
      kRuns);
  return limit_of(double(kCopyBytes), t);
}

GpuLimit copy_limit(gpu::Device& device, const DeviceTimer& timer) {
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
  return limit_of(2 * double(kCopyBytes), t);
}

GpuLimit matmul_limit(gpu::Device& device, const DeviceTimer& timer) {
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
  return limit_of(2 * double(kSide) * double(kSide) * double(kSide),
                  timer.measure([&](int) { gpu::matmul(on, p); }, kRuns));
}

}  // namespace assay
