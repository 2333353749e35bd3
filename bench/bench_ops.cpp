// bench_ops: the time of the large cases (--all: of every case) in the ops' case lists
// (tests/ops/<op>_cases.cpp) on the CPU, and the share of this machine's measured limits for the
// bytes and flops of the op's cost function. bench_device does the same on a GPU. Every buffer is
// restored between runs, outside the timed region; op_check compares the results.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

#include "base/standard_output.h"
#include "bench/options.h"
#include "machine/limits.h"
#include "machine/openmp_wait_policy.h"
#include "tests/ops/op_case.h"

namespace assay {
namespace {

// A large case of a CPU moves or computes at least this much. (CaseSize::kLarge has the sizes of
// training on a GPU: seconds per run here.)
constexpr double kLargeBytes = 4e6, kLargeFlops = 1e8;
// Runs of a case: until this time, but some; and none after that many.
constexpr double kSecondsPerCase = 0.1;
constexpr int kFewestRuns = 3, kMostRuns = 200;

struct Options {
  std::string op, filter;
  int threads = omp_get_max_threads();
  int iters = 0;  // 0: as many as fit into kSecondsPerCase
  bool all = false, json = false;
};

struct Limits {
  double copy, float_products, bf16_products;  // bytes per second, flops per second
};

struct Timing {
  double p50_us = 0, min_us = 0;
  int runs = 0;
};

// The time that the limits allow, as a share of the time taken.
struct Share {
  double share;
  const char* bound;
};

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Timing measure(const std::function<void()>& before, const std::function<void()>& f, int iters) {
  before();
  f();  // pages, caches and threads are warm from here on
  std::vector<double> us;
  const int most = iters > 0 ? iters : kMostRuns;
  for (double spent = 0; int(us.size()) < most;) {
    before();
    us.push_back(1e6 * seconds_of(f));
    spent += us.back() * 1e-6;
    if (iters == 0 && spent > kSecondsPerCase && int(us.size()) >= kFewestRuns) break;
  }
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us[0], int(us.size())};
}

bool is_large(const Cost& cost) {
  return cost.bytes >= kLargeBytes || cost.flops >= kLargeFlops;
}

Limits measured_limits(Exec on) {
  return {.copy = 1e9 * measured_copy_gb_per_s(on),
          .float_products = 1e9 * measured_matmul_limit_gflops(on, LimitType::kFloat),
          .bf16_products = 1e9 * measured_matmul_limit_gflops(on, LimitType::kBf16)};
}

Share share_of(const Limits& limits, const OpCase& c, const Cost& cost, double p50_us) {
  const bool bf16_case = c.name.find(dtype_name<bf16>()) != std::string::npos;
  const double products = bf16_case ? limits.bf16_products : limits.float_products;
  const double copy_us = 1e6 * cost.bytes / limits.copy, matmul_us = 1e6 * cost.flops / products;
  return {std::max(copy_us, matmul_us) / p50_us, matmul_us > copy_us ? "matmul" : "copy"};
}

void print_header(const Options& options, const Limits& limits) {
  const double copy = 1e-9 * limits.copy, in_float = 1e-9 * limits.float_products,
               in_bf16 = 1e-9 * limits.bf16_products;
  if (options.json) {
    std::printf(
        "{\"threads\": %d, \"copy_gb_per_s\": %.3f, \"matmul_gflop_per_s\": {\"float\": %.1f, "
        "\"bf16\": %.1f}, \"cases\": [",
        options.threads, copy, in_float, in_bf16);
    return;
  }
  std::printf("%d threads; limits measured: copy %.1f GB/s (read + written),\n", options.threads,
              copy);
  std::printf("matmul %.0f GFLOP/s float, %.0f GFLOP/s bf16\n\n", in_float, in_bf16);
  std::printf("%10s %10s %7s %8s %11s  %s\n", "p50 us", "min us", "GB/s", "GFLOP/s", "of limit",
              "case");
}

void print_case(const Options& options, const OpCase& c, const Cost& cost, const Timing& t,
                const Share& share, const char* separator) {
  if (options.json) {
    std::printf(
        "%s\n  {\"op\": \"%s\", \"case\": \"%s\", \"p50_us\": %.3f, \"min_us\": %.3f, "
        "\"runs\": %d, \"bytes\": %.0f, \"flops\": %.0f, \"bound\": \"%s\", \"share\": %.4f}",
        separator, c.op.c_str(), c.name.c_str(), t.p50_us, t.min_us, t.runs, cost.bytes, cost.flops,
        share.bound, share.share);
  } else {
    std::printf("%10.1f %10.1f %7.2f %8.2f %4.0f%% %-6s  %s\n", t.p50_us, t.min_us,
                1e-3 * cost.bytes / t.p50_us, 1e-3 * cost.flops / t.p50_us, 100 * share.share,
                share.bound, c.name.c_str());
  }
  std::fflush(stdout);
}

int no_case(const Options& options) {
  const std::string large = options.all ? "" : " large";
  std::fprintf(stderr, "error: no%s case of the CPU matches%s%s%s%s\n", large.c_str(),
               options.op.empty() ? "" : " --op ", options.op.c_str(),
               options.filter.empty() ? "" : " --filter ", options.filter.c_str());
  std::fprintf(stderr, "hint: %s\n",
               options.all ? "ops/ops.cmake lists the ops; without --op and --filter all run"
                           : "--all times the small cases too");
  return 1;
}

int run(const Options& options) {
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const Limits limits = measured_limits(on);
  print_header(options, limits);
  int done = 0;
  for (const OpCase& c : all_op_cases()) {
    if (!selected(c, options.op, options.filter) || c.size == CaseSize::kLarge ||
        c.body == OpBody::kGpu)
      continue;
    const OpInstance instance = c.make();
    if (instance.cost.bytes == 0) continue;  // the proof of a reference, or no rows
    if (!options.all && !is_large(instance.cost)) continue;
    const Timing t =
        measure([&] { instance.bench->restore(); }, [&] { instance.run(on); }, options.iters);
    print_case(options, c, instance.cost, t, share_of(limits, c, instance.cost, t.p50_us),
               done++ == 0 ? "" : ",");
  }
  if (options.json) std::printf("\n]}\n");
  return done == 0 ? no_case(options) : 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_passive_waiting(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_ops",
      "Time of each op's large cases on the CPU, with the share of this machine's\n"
      "measured limit: the larger of bytes / copy and flops / matmul, over the median.\n"
      "More than 100% means that the buffers stay in the caches. Needs no GPU.");
  options.add("--op", "TEXT", o.op, "one op or family: rmsnorm, linear_forward, ...");
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add("--all", o.all, "every case: with the small ones of the tests");
  options.add("--threads", o.threads, "CPU threads (default: all cores)");
  options.add("--iters", o.iters, "timed runs per case (default: as many as fit into 0.1 s)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
