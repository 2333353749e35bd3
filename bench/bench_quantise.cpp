// bench_quantise: the time of the quantisers' large cases, with the share of this machine's copy
// bandwidth, and the relative RMS error of each recipe's format on N(0, 1), 4096 x 4096. A case
// with a wrong result is not timed. --grids instead prints, as JSON, the numbers of each element
// format and what magnitudes round to; the figures of docs/precision.md are drawn from it.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"
#include "bench/cases.h"
#include "bench/json.h"
#include "bench/options.h"
#include "machine/limits.h"
#include "machine/openmp_wait_policy.h"
#include "ops/amax.h"
#include "ops/dequantise.h"
#include "ops/quantise/round_to_format.h"
#include "tests/ops/quantise_case.h"

namespace assay {
namespace {

constexpr double kLarge = 1e6;  // bytes
constexpr double kSecondsPerCase = 0.5;
constexpr int64_t kWidth = 4096;  // the error is measured on a kWidth x kWidth matrix

struct Options {
  std::string filter;
  int threads = usable_cores();
  int iters = 0;  // 0: as many as fit into kSecondsPerCase
  bool json = false, grids = false;
};

CaseTiming measure(const std::function<void()>& f, int iters) {
  std::vector<double> us;
  f();
  for (double spent = 0; iters > 0 ? int(us.size()) < iters : spent < 1e6 * kSecondsPerCase;) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    us.push_back(1e6 * seconds_since(begin));
    spent += us.back();
  }
  return timing_of(us);
}

void print_case(const Options& options, double copy, const OpCase& c, const Cost& cost,
                const CaseTiming& t, const char* separator) {
  const double gb = 1e-3 * cost.bytes / t.p50_us;
  if (options.json) {
    std::printf("%s\n  {%s, \"gb_per_s\": %.3f}", separator,
                json_fields(c, cost, t, {gb / copy, "copy"}).c_str(), gb);
    return;
  }
  std::printf("%-58s | %8.0f us (min %8.0f) | %6.2f GB/s | %3.0f%% of copy\n", c.name.c_str(),
              t.p50_us, t.min_us, gb, 100 * gb / copy);
}

// sqrt(sum (x - decoded)^2 / sum x^2) of the row copy.
double relative_rms(Exec on, const QuantFormat& f, const View<const float, 2>& x) {
  Workbench bench;
  const View<float, 1> most = bench.out<float, 1>("amax", {1});
  amax(on, Amax<float>{.amax = most, .x = x});
  Quantise<float> q{
      .row = copy_buffers(bench, "row", f, kWidth, kWidth, most[0]), .x = x, .format = f};
  quantise(on, q);
  const View<float, 2> y = bench.out<float, 2>("y", {kWidth, kWidth});
  dequantise(on, Dequantise<float>{.y = y,
                                   .codes = q.row.codes,
                                   .scales = q.row.scales,
                                   .scale_codes = q.row.scale_codes,
                                   .format = f});
  const double s = has_tensor_scale(f.scale) ? double(q.row.tensor_scale[1]) : 1.0;
  double error = 0, size = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double difference = double(y[i]) / s - double(x[i]);
    error += difference * difference;
    size += double(x[i]) * double(x[i]);
  }
  return std::sqrt(error / size);
}

// The formats, and again those whose scales the recipe fp8_block rounds to powers of two.
std::vector<std::pair<std::string, QuantFormat>> error_formats() {
  std::vector<std::pair<std::string, QuantFormat>> all;
  for (const auto& [name, format] : kRecipeFormats) {
    all.emplace_back(name, format);
    if (format.scale != ScaleKind::k1x128 && format.scale != ScaleKind::k128x128) continue;
    all.emplace_back(name + std::string(", power of two"), format);
    all.back().second.scale_rounding = ScaleRounding::kPowerOfTwo;
  }
  return all;
}

void print_errors(const Options& options, Exec on) {
  Workbench bench;
  const View<const float, 2> x = bench.in<float, 2>("normal", {kWidth, kWidth});
  if (!options.json)
    std::printf("\nrelative RMS error on N(0, 1), %ld x %ld\n", long(kWidth), long(kWidth));
  const char* separator = "";
  for (const auto& [name, format] : error_formats()) {
    QuantFormat f = format;
    double percent[2];
    for (const Rounding r : {Rounding::kNearest, Rounding::kStochastic}) {
      f.rounding = r;
      percent[int(r)] = 100 * relative_rms(on, f, x);
    }
    std::printf(
        options.json
            ? "%s\n  {\"format\": \"%s\", \"nearest_percent\": %.4f, \"stochastic_percent\": %.4f}"
            : "%s%-26s | nearest %7.3f%% | stochastic %7.3f%%\n",
        separator, name.c_str(), percent[0], percent[1]);
    if (options.json) separator = ",";
  }
}

// Prints {"name", "numbers": ascending from 0, "rounded": [[magnitude, rounded to nearest]]}.
template <typename Element>
void print_grid(const char* name, const char* separator) {
  std::printf("%s\n  {\"name\": \"%s\", \"numbers\": [0", separator, name);
  for (uint32_t code = 1; Element::decode(code - 1) < Element::kLargest; ++code) {
    std::printf(", %.9g", double(Element::decode(code)));
  }
  std::printf("], \"rounded\": [");
  constexpr int kOctave = 64;  // magnitudes per power of two
  const ElementGrid grid = element_grid<Element>();
  for (int i = -20 * kOctave; i <= 18 * kOctave; ++i) {
    const float x = std::exp2(float(i) / kOctave);
    std::printf("%s[%.9g, %.9g]", i > -20 * kOctave ? ", " : "", double(x),
                double(grid.nearest(x)));
  }
  std::printf("]}");
}

int print_grids() {
  std::printf("[");
  print_grid<e2m1>("E2M1", "");
  print_grid<e4m3>("E4M3", ",");
  print_grid<e5m2>("E5M2", ",");
  std::printf("\n]\n");
  return 0;
}

std::vector<OpCase> chosen_cases(const Options& options) {
  std::vector<OpCase> cases;
  for (const auto& list : {op_cases("amax"), op_cases("hadamard"), op_cases("quantise"),
                           op_cases("dequantise"), large_fake_quantise_cases()}) {
    for (const OpCase& c : list) {
      if (!selected(c, "", options.filter)) continue;
      if (c.size == CaseSize::kLarge) continue;  // timed on GPUs only
      // A statistical test, not a timing.
      if (c.name.find("unbiased") != std::string::npos) continue;
      if (c.make().timed().cost.bytes >= kLarge) cases.push_back(c);
    }
  }
  return cases;
}

void print_header(const Options& options, double copy) {
  if (!options.json) {
    std::printf("%d threads, copy bandwidth %.1f GB/s (read + written)\n", options.threads, copy);
    return;
  }
  const BenchHeader header{.program = "bench_quantise", .threads = options.threads};
  std::printf("{%s, \"copy_gb_per_s\": %.3f, \"cases\": [", json_fields(header).c_str(), copy);
}

int run(const Options& options) {
  if (options.grids) return print_grids();
  const std::vector<OpCase> cases = chosen_cases(options);
  if (cases.empty()) {
    throw no_case("timed case", {}, options.filter, "without --filter every one is timed");
  }
  CaseWorkspace workspace;
  const Exec on{.threads = options.threads, .workspace = workspace.view()};
  const double copy = measured_copy_gb_per_s(on);
  print_header(options, copy);
  int done = 0, wrong = 0;
  for (const OpCase& c : cases) {
    const OpInstance instance = c.make();
    instance.run(on);
    if (!is_correct(instance)) {
      std::fprintf(stderr, "%s: wrong result, no time\n", c.name.c_str());
      ++wrong;
      continue;
    }
    const OpInstance::Alone timed = instance.timed();
    print_case(options, copy, c, timed.cost, measure([&] { timed.run(on); }, options.iters),
               done++ == 0 ? "" : ",");
    std::fflush(stdout);
  }
  if (options.json) std::printf("\n], \"errors\": [");
  print_errors(options, on);
  if (options.json) std::printf("\n]}\n");
  return wrong > 0;
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::ensure_short_spinning(argv);
  assay::Options o;
  assay::BenchOptions options(
      "bench_quantise",
      "Time of the quantisers' large cases on the CPU, with the share of this machine's "
      "copy bandwidth, and the relative RMS error of each recipe's format on N(0, 1). More than "
      "100% of copy means that the buffers stay in the caches, or that the op reads more than it "
      "writes. A case with a wrong result is not timed. Needs no GPU.");
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add_threads(o.threads);
  options.add("--iters", o.iters, "timed runs per case (default: as many as fit into 0.5 s)");
  options.add("--grids", o.grids,
              "instead print, as JSON, the numbers of each element format and what magnitudes "
              "round to (docs/images/number_grids.py draws them)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  try {
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
