// bench_limits: this GPU's measured copy and matmul rates, the limits in the other benches.
#include <cstdio>

#include "base/check.h"
#include "base/memory_units.h"
#include "base/standard_output.h"
#include "bench/json.h"
#include "bench/options.h"
#include "machine/gpu_timer.h"

namespace assay {
namespace {

// "copy_tb_per_s": 3.9, "copy": {"most_tb_per_s": 4.0, "sm_mhz": 1980, ...}; null without a limit.
std::string limit_fields(const char* name, const char* unit, const std::optional<GpuLimit>& limit) {
  if (!limit) return strprintf("\"%s_%s\": null, \"%s\": null", name, unit, name);
  return strprintf("\"%s_%s\": %.4f, \"%s\": {\"most_%s\": %.4f, ", name, unit, limit->p50 * 1e-12,
                   name, unit, limit->most * 1e-12) +
         json_fields(limit->gpu) + "}";
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  using namespace assay;
  bool json = false;
  double heat_s = kHeatSecondsOfLimits;
  BenchOptions options(
      "bench_limits",
      "The measured limits of a GPU, by the median of 30 runs. The other benches divide by two: a "
      "copy of 1 GiB, and a bf16 product of 8192 x 8192 x 8192 by cuBLASLt. Two say what bounds "
      "the experts' products: reads from L2, and 1 GiB of floats that the memory adds (9.0 and "
      "newer). Needs a GPU.");
  options.add("--heat", heat_s, "seconds of the same work before the timed runs (default: 1)");
  options.add("--json", json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    const auto device = gpu::open_device();
    const gpu::DeviceFacts& facts = device->facts();
    const GpuMeter meter(facts.bus);
    say_problem(meter);
    const DeviceTimer timer(*device, heat_s, &meter);
    const GpuLimit copy = copy_limit(*device, timer), matmul = matmul_limit(*device, timer),
                   l2 = l2_read_limit(*device, timer);
    const std::optional<GpuLimit> add = add_limit(*device, timer);
    if (json) {
      const BenchHeader header{.program = "bench_limits", .device = facts.name};
      std::printf(
          "{%s, \"driver\": %d, \"toolkit\": %d, \"multiprocessors\": %d, \"memory_bytes\": %ld, "
          "\"l2_bytes\": %ld, \"l2_read_bytes\": %zu, \"heat_s\": %g, %s, %s, %s, %s}\n",
          json_fields(header).c_str(), facts.driver, facts.toolkit, facts.multiprocessors,
          long(facts.memory_bytes), long(facts.l2_bytes), l2_read_bytes(facts), heat_s,
          limit_fields("copy", "tb_per_s", copy).c_str(),
          limit_fields("matmul", "tflop_per_s", matmul).c_str(),
          limit_fields("l2_read", "tb_per_s", l2).c_str(),
          limit_fields("add", "tb_per_s", add).c_str());
    } else {
      std::printf("%s, %d SMs, %.1f GiB, L2 %.1f MiB, driver for CUDA %d.%d\n", facts.name.c_str(),
                  facts.multiprocessors, in_gib(facts.memory_bytes), in_mib(facts.l2_bytes),
                  facts.driver / 1000, facts.driver % 1000 / 10);
      std::printf("copy      %8.3f TB/s (read + written, 1 GiB)\n", copy.p50 * 1e-12);
      std::printf("matmul    %8.1f TFLOP/s (bf16, 8192 x 8192 x 8192, cuBLASLt)\n",
                  matmul.p50 * 1e-12);
      std::printf("L2 read   %8.3f TB/s (%.1f MiB)\n", l2.p50 * 1e-12,
                  in_mib(l2_read_bytes(facts)));
      if (add) {
        std::printf("add       %8.3f TB/s (floats that the memory adds, 1 GiB)\n",
                    add->p50 * 1e-12);
      }
    }
    return finish_standard_output(0);
  } catch (const std::exception& error) {
    return print_bench_error(error);
  }
}
