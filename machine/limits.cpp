#include "machine/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/bf16.h"
#include "base/seconds_since.h"
#include "cuda/memory_plan.h"
#include "machine/normals.h"
#include "ops/linear.h"

namespace assay {

namespace {

constexpr double kSecondsPerShape = 0.15;

template <typename T>
double forward_gflops(int threads, int64_t rows, int64_t out, int64_t in) {
  MemoryPlan plan;
  View<T, 2> y, x, plain;
  View<std::byte, 1> packed;
  plan.add(Section::kData, "y", y, {rows, out});
  plan.add(Section::kData, "x", x, {rows, in});
  plan.add(Section::kData, "weight", plain, {out, in});
  plan.add(Section::kData, "packed", packed, {weight_pack_bytes<T>(out, in)});
  plan.allocate();
  fill_normal(x.data, x.size());
  fill_normal(plain.data, plain.size());
  const Exec on{.threads = threads};
  weight_pack<T>(on, {.packed = packed, .plain = plain});
  const LinearForward<T> product{.y = y, .x = x, .weight = {.plain = plain, .packed = packed}};
  double best = 1e30;
  for (double spent = 0; spent < kSecondsPerShape;) {
    const auto start = std::chrono::steady_clock::now();
    linear_forward<T, T>(on, product);
    const double seconds = seconds_since(start);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return 1e-9 * linear_forward_cost(product).flops / best;
}

template <typename T>
double limit(int threads) {
  double best = 0;
  for (const int64_t width : {256, 1024, 2048}) {
    best = std::max(best, forward_gflops<T>(threads, 2048, width, width));
  }
  return best;
}

}  // namespace

double measured_matmul_limit_gflops(Exec on, LimitType type) {
  return type == LimitType::kFloat ? limit<float>(on.threads) : limit<bf16>(on.threads);
}

double measured_copy_gb_per_s(Exec on) {
  constexpr int64_t kBytes = int64_t{128} << 20, kGrain = int64_t{1} << 20;
  constexpr int kRuns = 9;
  const auto from = std::make_unique_for_overwrite<std::byte[]>(kBytes),
             to = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  // A page lies near the core that writes it first: the one that copies it below.
  parallel_ranges(on, kBytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memset(from.get() + begin, 1, size_t(end - begin));
    std::memset(to.get() + begin, 0, size_t(end - begin));
  });
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    parallel_ranges(on, kBytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to.get() + begin, from.get() + begin, size_t(end - begin));
    });
    const double seconds = seconds_since(start);
    best = std::min(best, seconds);
  }
  return 2e-9 * double(kBytes) / best;
}

}  // namespace assay
