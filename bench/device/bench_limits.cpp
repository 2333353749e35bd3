// bench_limits: this GPU's measured copy and matmul rates, the limits in the other benches.
#include <cstdio>

#include "base/standard_output.h"
#include "bench/options.h"
#include "machine/gpu_timer.h"

int main(int argc, char** argv) {
  using namespace assay;
  bool json = false;
  double heat_s = 1;
  BenchOptions options(
      "bench_limits",
      "The measured limits of a GPU. The other benches divide by two: a copy of 1 GiB, and a bf16 "
      "product of 8192 x 8192 x 8192 by cuBLASLt. Two say what bounds the experts' products: reads "
      "of 24 MiB from L2, and 1 GiB of floats that the memory adds. Needs a GPU.");
  options.add("--heat", heat_s, "seconds of the same work before the timed runs (default: 1)");
  options.add("--json", json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    const auto device = gpu::open_device();
    const gpu::DeviceFacts& facts = device->facts();
    const GpuMeter meter(facts.bus);
    say_problem(meter);
    const DeviceTimer timer(*device, heat_s, &meter);
    GpuReading at_copy, at_matmul, at_l2, at_add;
    const double copy = copy_limit(*device, timer, &at_copy) * 1e-12;
    const double matmul = matmul_limit(*device, timer, &at_matmul) * 1e-12;
    const double l2 = l2_read_limit(*device, timer, &at_l2) * 1e-12;
    const double add = add_limit(*device, timer, &at_add) * 1e-12;
    if (json) {
      std::printf(
          "{\"device\": \"%s\", \"driver\": %d, \"toolkit\": %d, \"multiprocessors\": %d, "
          "\"memory_bytes\": %ld, \"l2_bytes\": %ld, \"copy_tb_per_s\": %.4f, "
          "\"matmul_tflop_per_s\": %.2f, \"l2_read_tb_per_s\": %.4f, \"add_tb_per_s\": %.4f, "
          "\"heat_s\": %g, \"copy\": {%s}, \"matmul\": {%s}, \"l2_read\": {%s}, \"add\": {%s}}\n",
          facts.name.c_str(), facts.driver, facts.toolkit, facts.multiprocessors,
          long(facts.memory_bytes), long(facts.l2_bytes), copy, matmul, l2, add, heat_s,
          json_fields(at_copy).c_str(), json_fields(at_matmul).c_str(), json_fields(at_l2).c_str(),
          json_fields(at_add).c_str());
    } else {
      std::printf("%s, %d SMs, %.1f GiB, L2 %.1f MiB, driver for CUDA %d.%d\n", facts.name.c_str(),
                  facts.multiprocessors, double(facts.memory_bytes) / (1 << 30),
                  double(facts.l2_bytes) / (1 << 20), facts.driver / 1000,
                  facts.driver % 1000 / 10);
      std::printf("copy      %8.3f TB/s (read + written, 1 GiB)\n", copy);
      std::printf("matmul    %8.1f TFLOP/s (bf16, 8192 x 8192 x 8192, cuBLASLt)\n", matmul);
      std::printf("L2 read   %8.3f TB/s (24 MiB)\n", l2);
      if (add > 0) std::printf("add       %8.3f TB/s (floats that the memory adds, 1 GiB)\n", add);
    }
    return finish_standard_output(0);
  } catch (const std::exception& error) {
    return print_bench_error(error);
  }
}
