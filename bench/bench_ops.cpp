// bench_ops [--op NAME] [--filter TEXT] [--threads N] [--iters N] [--json]: the time of every case
// in the ops' case lists (tests/ops/<op>_cases.cpp), with the bytes and flops of the op's cost
// function and this machine's copy bandwidth. Every buffer is restored between runs, outside the
// timed region.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/standard_output.h"
#include "machine/limits.h"
#include "tests/ops/op_case.h"

namespace assay {
namespace {

constexpr double kSecondsPerCase = 0.4;
constexpr int kFewestRuns = 5, kMostRuns = 200;

struct Options {
  std::string op, filter;
  int threads = omp_get_max_threads();
  int iters = 0;  // 0: as many as fit into kSecondsPerCase
  enum class Output { kTable, kJson } output = Output::kTable;
};

struct Timing {
  double p50_us = 0, min_us = 0;
  int runs = 0;
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

int usage(int status) {
  std::fprintf(stderr,
               "usage: bench_ops [--op NAME] [--filter TEXT] [--threads N] [--iters N] [--json]\n");
  return status;
}

void print_header(const Options& options, double copy) {
  if (options.output == Options::Output::kJson) {
    std::printf("{\"threads\": %d, \"copy_gb_per_s\": %.3f, \"cases\": [", options.threads, copy);
    return;
  }
  std::printf("%d threads, copy bandwidth %.1f GB/s (read + written)\n\n", options.threads, copy);
  std::printf("%10s %10s %8s %6s %9s  %s\n", "p50 us", "min us", "GB/s", "copy", "GFLOP/s", "case");
}

void print_case(const Options& options, double copy, const OpCase& c, const Cost& cost,
                const Timing& t, const char* separator) {
  const double gb = 1e-3 * cost.bytes / t.p50_us, gflop = 1e-3 * cost.flops / t.p50_us;
  if (options.output == Options::Output::kJson) {
    std::printf(
        "%s\n  {\"op\": \"%s\", \"case\": \"%s\", \"p50_us\": %.3f, \"min_us\": %.3f, "
        "\"runs\": %d, \"bytes\": %.0f, \"flops\": %.0f}",
        separator, c.op.c_str(), c.name.c_str(), t.p50_us, t.min_us, t.runs, cost.bytes,
        cost.flops);
    return;
  }
  std::printf("%10.1f %10.1f %8.2f %5.0f%% %9.2f  %s\n", t.p50_us, t.min_us, gb, 100 * gb / copy,
              gflop, c.name.c_str());
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--json") {
      options.output = Options::Output::kJson;
    } else if (flag == "--op" && has_value) {
      options.op = argv[++i];
    } else if (flag == "--filter" && has_value) {
      options.filter = argv[++i];
    } else if (flag == "--threads" && has_value) {
      options.threads = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--iters" && has_value) {
      options.iters = std::max(1, std::atoi(argv[++i]));
    } else {
      return usage(flag == "--help" ? 0 : 1);
    }
  }
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const double copy = measured_copy_gb_per_s({.threads = options.threads});
  print_header(options, copy);
  int done = 0;
  for (const OpCase& c : all_op_cases()) {
    if (!selected(c, options.op, options.filter) || c.size == CaseSize::kLarge ||
        c.body == OpBody::kGpu)
      continue;
    const OpInstance instance = c.make();
    if (instance.cost.bytes == 0) continue;  // the proof of a reference, or no rows
    const Timing t =
        measure([&] { instance.bench->restore(); }, [&] { instance.run(on); }, options.iters);
    print_case(options, copy, c, instance.cost, t, done++ == 0 ? "" : ",");
  }
  if (options.output == Options::Output::kJson) std::printf("\n]}\n");
  if (done == 0) std::fprintf(stderr, "bench_ops: no case matches\n");
  return done == 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  return assay::finish_standard_output(assay::run(argc, argv));
}
