// bench_ops: the time of the largest case of each op and type (--all: of every case) in the ops'
// case lists (tests/ops/<op>_cases.cpp) on the CPU, and the share of this machine's measured limits
// for the bytes and flops of the op's cost function. bench_device does the same on a GPU. Every
// buffer is restored between runs, outside the timed region; op_check compares the results.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <sstream>

#include "base/cores.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/cases.h"
#include "bench/json.h"
#include "bench/options.h"
#include "machine/limits.h"
#include "machine/openmp_wait_policy.h"

namespace assay {
namespace {

// Runs of a case: until this time, but some; and none after that many.
constexpr double kSecondsPerCase = 0.05;
constexpr int kFewestRuns = 3, kMostRuns = 200;

struct Options {
  std::string op, filter;
  int threads = usable_cores();
  int iters = 0;  // 0: as many as fit into kSecondsPerCase
  bool all = false, json = false;
};

struct Limits {
  double copy, float_products, bf16_products;  // bytes per second, flops per second
};

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return seconds_since(begin);
}

CaseTiming measure(const std::function<void()>& before, const std::function<void()>& f, int iters) {
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
  return timing_of(us);
}

// "bf16", "float", or "" where the name of the case has no type.
std::string type_of(const OpCase& c) {
  for (const char* const type : {dtype_name<bf16>(), dtype_name<float>()}) {
    if (c.name.find(type) != std::string::npos) return type;
  }
  return "";
}

// The types that the name of the case has, in its order: " float bf16" of a cast. By these and the
// op cases are sorted into kinds.
std::string types_of(const OpCase& c) {
  std::istringstream words(c.name);
  std::string types;
  for (std::string word; words >> word;) {
    if (word == dtype_name<bf16>() || word == dtype_name<float>()) types += " " + word;
  }
  return types;
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
  std::map<std::pair<std::string, std::string>, Largest> largest;  // by op and types
  for (OpCase& c : all_op_cases()) {
    if (!selected(c, options.op, options.filter) || c.size == CaseSize::kLarge ||
        c.body == OpBody::kGpu)
      continue;
    // A statistical test, not a size of a model.
    if (!options.all && (c.name.find("unbiased") != std::string::npos ||
                         c.name.find("relative error") != std::string::npos))
      continue;
    const Cost cost = c.make().timed().cost;
    if (cost.bytes == 0) continue;  // the proof of a reference, or no rows
    Largest& found = largest[{c.op, types_of(c)}];
    if (size_of(cost) > found.size) found = {size_of(cost), cases.size()};
    cases.push_back(std::move(c));
  }
  if (options.all) return cases;
  std::vector<size_t> indices;
  for (auto kind = largest.begin(); kind != largest.end(); ++kind) {
    const auto& [op, types] = kind->first;
    // Beside cases with a type, one without tests something special (infinities).
    const auto next = std::next(kind);
    const bool special = types.empty() && next != largest.end() && next->first.first == op;
    if (!special) indices.push_back(kind->second.index);
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

double products_limit(const Limits& limits, const OpCase& c) {
  if (!multiplies(c)) return 0;
  return type_of(c) == dtype_name<bf16>() ? limits.bf16_products : limits.float_products;
}

void print_header(const Options& options, const Limits& limits) {
  const double copy = 1e-9 * limits.copy, in_float = 1e-9 * limits.float_products,
               in_bf16 = 1e-9 * limits.bf16_products;
  if (options.json) {
    const BenchHeader header{.program = "bench_ops", .threads = options.threads};
    std::printf(
        "{%s, \"copy_gb_per_s\": %.3f, \"matmul_gflop_per_s\": {\"float\": %.1f, \"bf16\": %.1f}, "
        "\"cases\": [",
        json_fields(header).c_str(), copy, in_float, in_bf16);
    return;
  }
  std::printf("%d threads; limits measured: copy %.1f GB/s (read + written),\n", options.threads,
              copy);
  std::printf("matmul %.0f GFLOP/s float, %.0f GFLOP/s bf16\n\n", in_float, in_bf16);
  std::printf("%10s %10s %7s %8s %11s  %s\n", "p50 us", "min us", "GB/s", "GFLOP/s", "of limit",
              "case");
}

void print_case(const Options& options, const OpCase& c, const Cost& cost, const CaseTiming& t,
                const Share& share, const char* separator) {
  if (options.json) {
    std::printf("%s\n  {%s}", separator, json_fields(c, cost, t, share).c_str());
  } else {
    std::printf("%10.1f %10.1f %7.2f %8.2f %4.0f%% %-6s  %s\n", t.p50_us, t.min_us,
                1e-3 * cost.bytes / t.p50_us, 1e-3 * cost.flops / t.p50_us, 100 * share.share,
                share.bound, c.name.c_str());
  }
  std::fflush(stdout);
}

int run(const Options& options) {
  const std::vector<OpCase> cases = chosen_cases(options);
  if (cases.empty()) {
    throw no_case("case of the CPU with a cost",
                  options.op.empty() ? std::vector<std::string>{} : std::vector{options.op},
                  options.filter,
                  "`bench_ops --all` times every case; ops/ops.cmake lists the ops");
  }
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const Limits limits = measured_limits(on);
  print_header(options, limits);
  const char* separator = "";
  for (const OpCase& c : cases) {
    const OpInstance instance = c.make();
    const OpInstance::Alone timed = instance.timed();
    const auto before = [&] {
      instance.bench->restore();
      if (instance.alone) instance.run(on);  // gives the op its inputs
    };
    const CaseTiming t = measure(
        before, [&] { timed.run(on); }, options.iters);
    print_case(options, c, timed.cost, t,
               share_of(timed.cost, limits.copy, products_limit(limits, c), t.p50_us), separator);
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
      "share of this machine's measured limit: the larger of bytes / copy and, of products, flops "
      "/ matmul, over the median. The matmul limit is the fastest of Assay's own linear products, "
      "not the hardware's peak. More than 100% means that the buffers stay in the caches, that the "
      "op reads more than it writes, which memory does faster than a copy, or that its product is "
      "faster than those of the limit. Needs no GPU.");
  options.add("--op", "TEXT", o.op, "one op or family: rmsnorm, linear_forward");
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add("--all", o.all, "every case of the lists");
  options.add_threads(o.threads);
  options.add("--iters", o.iters, "timed runs per case (default: as many as fit into 0.05 s)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
