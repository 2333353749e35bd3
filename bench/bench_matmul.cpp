// bench_matmul: GFLOP/s of the large cases in the linear layers' case lists, the share of this
// machine's matmul limit, and oneDNN's time for the same dense product divided by ours (above 1:
// ours is faster); the two run alternately. A case with a wrong result is not timed.
#include <omp.h>

#include <chrono>
#include <cstdio>

#include "base/check.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/cases.h"
#include "bench/json.h"
#include "bench/options.h"
#include "bench/peers/onednn.h"
#include "machine/limits.h"
#include "machine/openmp_wait_policy.h"

namespace assay {
namespace {

constexpr double kLarge = 1e8;  // flops
constexpr double kSecondsPerCase = 0.5;

struct Options {
  std::string filter;
  int threads = usable_cores();
  int iters = 0;  // 0: as many as fit into kSecondsPerCase
  bool json = false;
};

double microseconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return 1e6 * seconds_since(begin);
}

LimitType type_of(const OpCase& c) {
  return c.name.find(" bf16") == std::string::npos ? LimitType::kFloat : LimitType::kBf16;
}

// The dense product a case's name describes, through oneDNN.
std::function<void()> peer_of(const OpCase& c) {
  for (const char* without : {" add", " scale"}) {
    if (c.name.find(without) != std::string::npos) return {};
  }
  long rows, out, in;
  char op[32], type[8];
  if (std::sscanf(c.name.c_str(), "%31s %7s N=%ld out=%ld in=%ld", op, type, &rows, &out, &in) !=
      5) {
    return {};
  }
  const Pass pass = c.op == "linear_forward" ? Pass::kForward
                    : c.op == "linear_dgrad" ? Pass::kDgrad
                                             : Pass::kWgrad;
  return onednn_product(pass, type_of(c), rows, out, in);
}

struct Result {
  std::vector<double> us, peer_us;
};

Result measure(const std::function<void()>& f, const std::function<void()>& peer, int iters) {
  Result r;
  f();
  if (peer) peer();
  for (double spent = 0; iters > 0 ? int(r.us.size()) < iters : spent < 1e6 * kSecondsPerCase;) {
    r.us.push_back(microseconds_of(f));
    if (peer) r.peer_us.push_back(microseconds_of(peer));
    spent += r.us.back() + (peer ? r.peer_us.back() : 0);
  }
  return r;
}

// limit: GFLOP/s.
void print_case(const Options& options, double limit, const OpCase& c, const Cost& cost, Result r,
                const char* separator) {
  const CaseTiming t = timing_of(r.us);
  const double peer = median(r.peer_us), gflops = 1e-3 * cost.flops / t.p50_us;
  if (options.json) {
    const std::string of_peer = peer > 0 ? strprintf("%.3f", peer) : "null";
    std::printf("%s\n  {%s, \"gflops\": %.1f, \"onednn_p50_us\": %s}", separator,
                json_fields(c, cost, t, {gflops / limit, "matmul"}).c_str(), gflops,
                of_peer.c_str());
    return;
  }
  char ratio[32] = "";
  if (peer > 0) std::snprintf(ratio, sizeof ratio, " | %.2fx oneDNN", peer / t.p50_us);
  std::printf("%-62s | %8.0f us (min %8.0f) | %4.0f GFLOP/s | %3.0f%% of limit%s\n", c.name.c_str(),
              t.p50_us, t.min_us, gflops, 100 * gflops / limit, ratio);
}

std::vector<OpCase> chosen_cases(const Options& options) {
  std::vector<OpCase> cases;
  for (const char* op : {"linear", "grouped_linear", "grouped_swiglu"}) {
    for (OpCase& c : op_cases(op)) {
      if (!selected(c, "", options.filter)) continue;
      if (c.size == CaseSize::kLarge) continue;  // timed on GPUs only
      if (c.make().cost.flops >= kLarge) cases.push_back(std::move(c));
    }
  }
  return cases;
}

void print_header(const Options& options, double bf16_limit, double float_limit) {
  if (!options.json) {
    std::printf("%d threads, matmul limit %.0f GFLOP/s bf16, %.0f GFLOP/s float\n", options.threads,
                bf16_limit, float_limit);
    return;
  }
  const BenchHeader header{.program = "bench_matmul", .threads = options.threads};
  std::printf("{%s, \"matmul_gflop_per_s\": {\"float\": %.1f, \"bf16\": %.1f}, \"cases\": [",
              json_fields(header).c_str(), float_limit, bf16_limit);
}

int run(const Options& options) {
  const std::vector<OpCase> cases = chosen_cases(options);
  if (cases.empty()) {
    throw no_case("large product", {}, options.filter, "without --filter every one is timed");
  }
  omp_set_num_threads(options.threads);  // for oneDNN
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const double bf16_limit = measured_matmul_limit_gflops(on, LimitType::kBf16);
  const double float_limit = measured_matmul_limit_gflops(on, LimitType::kFloat);
  print_header(options, bf16_limit, float_limit);
  int done = 0, wrong = 0;
  for (const OpCase& c : cases) {
    const OpInstance instance = c.make();
    instance.run(on);
    if (!is_correct(instance)) {
      std::fprintf(stderr, "%s: wrong result, no time\n", c.name.c_str());
      ++wrong;
      continue;
    }
    const double limit = type_of(c) == LimitType::kBf16 ? bf16_limit : float_limit;
    print_case(options, limit, c, instance.cost,
               measure([&] { instance.run(on); }, peer_of(c), options.iters),
               done++ == 0 ? "" : ",");
    std::fflush(stdout);
  }
  if (options.json) std::printf("\n]}\n");
  return wrong > 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_short_spinning(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_matmul",
      "GFLOP/s of the large cases of the linear layers on the CPU, with the share of this "
      "machine's matmul limit (the fastest of Assay's own linear products of three other sizes, "
      "not the hardware's peak; more than 100% is possible) and, where oneDNN is installed, the "
      "ratio to its time (above 1: ours is faster). A case with a wrong result is not timed. Needs "
      "no GPU.");
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add_threads(o.threads);
  options.add("--iters", o.iters, "timed runs per case (default: as many as fit into 0.5 s)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
