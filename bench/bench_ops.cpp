// bench_ops: the time of the largest case of each op and type (--all: of every case) in the ops'
// case lists (tests/ops/<op>_cases.cpp) on the CPU, and the share of this machine's measured limits
// for the bytes and flops of the op's cost function. bench_device does the same on a GPU. Every
// buffer is restored between runs, outside the timed region; op_check compares the results.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>

#include "base/median.h"
#include "base/standard_output.h"
#include "bench/options.h"
#include "machine/limits.h"
#include "machine/openmp_wait_policy.h"
#include "tests/ops/op_case.h"

namespace assay {
namespace {

// Runs of a case: until this time, but some; and none after that many.
constexpr double kSecondsPerCase = 0.05;
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
  return {median(us), us[0], int(us.size())};
}

// "bf16", "float", or "" where the name of the case has no type.
std::string type_of(const OpCase& c) {
  for (const char* const type : {dtype_name<bf16>(), dtype_name<float>()}) {
    if (c.name.find(type) != std::string::npos) return type;
  }
  return "";
}

// How large a case is: a time on a machine that computes ten operations while it moves one byte.
// Not this machine's: every machine times the same cases.
double size_of(const Cost& cost) {
  return std::max(cost.bytes, cost.flops / 10);
}

// The cases to time. CaseSize::kLarge is for GPUs: seconds per run here.
std::vector<OpCase> chosen_cases(const Options& options) {
  struct Largest {
    double size = 0;
    size_t index = 0;
  };
  std::vector<OpCase> cases, chosen;
  std::map<std::string, Largest> largest;  // by op and type
  for (OpCase& c : all_op_cases()) {
    if (!selected(c, options.op, options.filter) || c.size == CaseSize::kLarge ||
        c.body == OpBody::kGpu)
      continue;
    if (!options.all) {
      // A statistical test, not a size of a model.
      if (c.name.find("unbiased") != std::string::npos) continue;
      if (c.name.find("relative error") != std::string::npos) continue;
      Largest& found = largest[c.op + " " + type_of(c)];
      const double size = size_of(c.make().cost);
      if (size > found.size) found = {size, cases.size()};
    }
    cases.push_back(std::move(c));
  }
  if (options.all) return cases;
  std::vector<size_t> indices;
  for (const auto& [name, found] : largest) {
    const std::string& op = cases[found.index].op;
    // Beside cases with a type, one without tests something special (infinities).
    const bool special =
        name == op + " " && (largest.contains(op + " bf16") || largest.contains(op + " float"));
    if (found.size > 0 && !special) indices.push_back(found.index);
  }
  std::sort(indices.begin(), indices.end());
  for (const size_t index : indices) chosen.push_back(std::move(cases[index]));
  return chosen;
}

Limits measured_limits(Exec on) {
  return {.copy = 1e9 * measured_copy_gb_per_s(on),
          .float_products = 1e9 * measured_matmul_limit_gflops(on, LimitType::kFloat),
          .bf16_products = 1e9 * measured_matmul_limit_gflops(on, LimitType::kBf16)};
}

Share share_of(const Limits& limits, const OpCase& c, const Cost& cost, double p50_us) {
  const bool in_bf16 = type_of(c) == dtype_name<bf16>();
  const double products = in_bf16 ? limits.bf16_products : limits.float_products;
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
  std::fprintf(stderr, "error: no case of the CPU matches%s%s%s%s\n",
               options.op.empty() ? "" : " --op ", options.op.c_str(),
               options.filter.empty() ? "" : " --filter ", options.filter.c_str());
  std::fprintf(stderr, "hint: `bench_ops --all` prints every case; ops/ops.cmake lists the ops\n");
  return 1;
}

int run(const Options& options) {
  const std::vector<OpCase> cases = chosen_cases(options);
  if (cases.empty()) return no_case(options);
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const Limits limits = measured_limits(on);
  print_header(options, limits);
  const char* separator = "";
  for (const OpCase& c : cases) {
    const OpInstance instance = c.make();
    if (instance.cost.bytes == 0) continue;  // the proof of a reference, or no rows
    const Timing t =
        measure([&] { instance.bench->restore(); }, [&] { instance.run(on); }, options.iters);
    print_case(options, c, instance.cost, t, share_of(limits, c, instance.cost, t.p50_us),
               separator);
    separator = ",";
  }
  if (options.json) std::printf("\n]}\n");
  return 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_short_spinning(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_ops",
      "Time of each op on the CPU, at the largest size of its case list for each type, with the "
      "share of this machine's measured limit: the larger of bytes / copy and flops / matmul, "
      "over the median. More than 100% means that the buffers stay in the caches. Needs no GPU.");
  options.add("--op", "TEXT", o.op, "one op or family: rmsnorm, linear_forward");
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add("--all", o.all, "every case of the lists");
  options.add("--threads", o.threads, "CPU threads (default: all cores)");
  options.add("--iters", o.iters, "timed runs per case (default: as many as fit into 0.05 s)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
