// bench_device: the GPU time of the large cases (--all: of every case) in the ops' case lists
// (tests/ops/<op>_cases.cpp), and the share of this GPU's measured limits for the bytes and flops
// of the op's cost function. bench_attention, bench_grouped, ... are links to this program, which
// takes a group of ops by the name it has.
//
// Each case has enough copies of its buffers in device memory that a copy leaves the L2 cache
// before it is used again. The result of the first run is compared with the reference; a wrong
// result is not timed. A case that fails, or that the library refuses, is reported and counted; the
// others still run unless the device has become unusable.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <sstream>

#include "base/check.h"
#include "base/standard_output.h"
#include "bench/cases.h"
#include "bench/json.h"
#include "bench/options.h"
#include "machine/gpu_timer.h"

namespace assay {
namespace {

constexpr int kMostCopies = 24;
constexpr int kCachesApart = 3;  // L2 sizes of other data between two runs on one copy

struct Options {
  std::string program;
  std::vector<std::string> ops;  // empty: all
  std::string filter;
  int iters = 50;
  double heat_s = 0.5;
  bool all = false, json = false;
};

struct Limits {
  double copy, matmul;  // bytes per second, flops per second
};

bool wanted(const Options& options, const OpCase& c) {
  if (c.body == OpBody::kCpu) return false;
  if (c.size != CaseSize::kLarge && !options.all) return false;
  const auto of = [&](const std::string& op) { return selected(c, op, options.filter); };
  return options.ops.empty() ? of("") : std::any_of(options.ops.begin(), options.ops.end(), of);
}

// Throughput of the tensor cores on the case's operand type, relative to bf16; 0 for float cases,
// which do not use them.
double tensor_core_rate(const OpCase& c) {
  const bool codes = c.op == "scaled_linear" || c.op.rfind("grouped_scaled", 0) == 0;
  // The dtype in the name is the result's.
  if (codes) return c.name.find("nvfp4") != std::string::npos ? 4 : 2;
  return c.name.find(dtype_name<bf16>()) != std::string::npos ? 1 : 0;
}

class Bench {
 public:
  Bench(gpu::Device& device, const Options& options)
      : device_(device),
        options_(options),
        meter_(device.facts().bus),
        timer_(device, options.heat_s, &meter_),
        workspace_(kWorkspaceBytes) {
    say_problem(meter_);
    limits_ = {copy_limit(device, timer_).p50, matmul_limit(device, timer_).p50};
    memory_ = {.allocate =
                   [](size_t bytes) {
                     const auto buffer = std::make_shared<gpu::DeviceBuffer>(bytes);
                     return std::shared_ptr<std::byte>(buffer, buffer->data());
                   },
               .copy =
                   [this](void* to, const void* from, size_t bytes) {
                     gpu::copy(*device_.context(), to, from, bytes);
                     device_.wait();
                   }};
  }
  void header() const;
  void run(const OpCase& c);
  bool device_broken() const { return device_broken_; }
  int finish() const;

 private:
  static constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;

  void check_and_time(const OpCase& c);
  void fail(const OpCase& c, const std::string& problem);
  void begin_row();
  std::string wrong(const OpInstance& instance) const;
  void print(const OpCase& c, const Cost& cost, const DeviceTiming& t);

  gpu::Device& device_;
  const Options& options_;
  const GpuMeter meter_;
  const DeviceTimer timer_;
  gpu::DeviceBuffer workspace_;
  Limits limits_ = {};
  CopyMemory memory_;
  int done_ = 0, failed_ = 0, rows_ = 0;
  bool device_broken_ = false;
};

void Bench::header() const {
  const gpu::DeviceFacts& facts = device_.facts();
  if (options_.json) {
    const BenchHeader header{.program = options_.program, .device = facts.name};
    std::printf(
        "{%s, \"driver\": %d, \"heat_s\": %g, \"copy_tb_per_s\": %.4f, \"matmul_tflop_per_s\": "
        "%.2f, \"cases\": [",
        json_fields(header).c_str(), facts.driver, options_.heat_s, limits_.copy * 1e-12,
        limits_.matmul * 1e-12);
    return;
  }
  std::printf("%s, driver for CUDA %d.%d; limits measured: copy %.3f TB/s, matmul %.1f TFLOP/s\n\n",
              facts.name.c_str(), facts.driver / 1000, facts.driver % 1000 / 10,
              limits_.copy * 1e-12, limits_.matmul * 1e-12);
}

// Runs once on the first copy and compares with the reference. Returns the problem; empty: none.
std::string Bench::wrong(const OpInstance& instance) const {
  Workbench& bench = *instance.bench;
  bench.use_copy(0);
  instance.run({.workspace = {workspace_.data(), {kWorkspaceBytes}}, .gpu = device_.context()});
  device_.wait();
  if (bench.calls_located() == 0) return "the case does not place its buffers on the device";
  bench.fetch_copy();
  bench.use_copy(-1);
  Report report;
  instance.check(report);
  for (const auto& r : report.comparisons()) {
    if (r.outside > 0) {
      return strprintf("%s[%ld]: got %.9g, want %.9g, tolerance %.3g, %ld outside",
                       r.tensor.c_str(), long(r.worst_index), r.got, r.want, r.tolerance,
                       long(r.outside));
    }
  }
  return "";
}

void Bench::run(const OpCase& c) {
  const int done = done_;
  try {
    check_and_time(c);
  } catch (const std::exception& error) {
    done_ = done + 1;
    fail(c, error.what());
    device_broken_ = device_.broken();
    if (!device_broken_) return;
    std::fprintf(stderr,
                 "the device is unusable after this case; the remaining cases are skipped\n");
  }
}

void Bench::begin_row() {
  std::printf("%s\n  ", rows_++ > 0 ? "," : "");
}

void Bench::fail(const OpCase& c, const std::string& problem) {
  ++failed_;
  std::fprintf(stderr, "FAIL %s | not timed: %s\n", c.name.c_str(), problem.c_str());
  if (!options_.json) return;
  begin_row();
  std::printf("{\"op\": %s, \"case\": %s, \"failed\": %s}", json_string(c.op).c_str(),
              json_string(c.name).c_str(), json_string(problem).c_str());
  std::fflush(stdout);
}

void Bench::check_and_time(const OpCase& c) {
  const OpInstance instance = c.make();
  const OpInstance::Alone timed = instance.timed();
  if (timed.cost.bytes == 0) return;  // the proof of a reference, or no rows
  Workbench& bench = *instance.bench;
  const double apart = double(kCachesApart) * double(device_.facts().l2_bytes);
  const int copies = int(
      std::clamp(apart / double(std::max<size_t>(bench.bytes(), 1)) + 1, 2.0, double(kMostCopies)));
  bench.place_copies(memory_, copies);
  const std::string problem = wrong(instance);
  ++done_;
  if (!problem.empty()) return fail(c, problem);
  const Exec on{.workspace = {workspace_.data(), {kWorkspaceBytes}}, .gpu = device_.context()};
  for (int i = 1; instance.alone && i < copies; ++i) {  // gives the op its inputs
    bench.use_copy(i);
    instance.run(on);
  }
  const auto run = [&](int i) {
    bench.use_copy(i % copies);
    timed.run(on);
  };
  print(c, timed.cost, timer_.measure(run, options_.iters));
}

void Bench::print(const OpCase& c, const Cost& cost, const DeviceTiming& t) {
  // Float products do not run on tensor cores; the bench bounds them by bytes alone.
  const double rate = multiplies(c) ? tensor_core_rate(c) : 0;
  const Share s = share_of(cost, limits_.copy, rate * limits_.matmul, t.p50_us);
  if (options_.json) {
    begin_row();
    const CaseTiming timing{.p50_us = t.p50_us, .min_us = t.min_us, .runs = t.runs};
    std::printf("{%s, %s}", json_fields(c, cost, timing, s).c_str(), json_fields(t.gpu).c_str());
  } else {
    std::printf(
        "%-64s | %9.1f us (min %9.1f) | %6.3f TB/s | %7.2f TFLOP/s | %3.0f%% of %s limit%s\n",
        c.name.c_str(), t.p50_us, t.min_us, 1e-6 * cost.bytes / t.p50_us,
        1e-6 * cost.flops / t.p50_us, 100 * s.share, s.bound,
        t.gpu.sm_mhz ? strprintf(", %d MHz", *t.gpu.sm_mhz).c_str() : "");
  }
  std::fflush(stdout);
}

int Bench::finish() const {
  if (options_.json) {
    std::printf("\n], \"done\": %d, \"failed\": %d}\n", done_, failed_);
  }
  if (done_ == 0) {
    std::fprintf(stderr,
                 "error: no case that matches has a cost to compare its time with\n"
                 "hint: choose others by --op and --filter\n");
  }
  return done_ == 0 || failed_ > 0;
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

// The ops of a group, of which `program` is the name; "" for another name.
std::string ops_of(const std::string& program) {
  std::istringstream groups(ASSAY_BENCH_GROUPS);  // "bench_attention attention qk_norm ...|..."
  for (std::string group; std::getline(groups, group, '|');) {
    if (group.rfind(program + " ", 0) == 0) return group.substr(program.size() + 1);
  }
  return "";
}

// The cases to time on a GPU of this compute capability. 0: on one that has every op.
std::vector<OpCase> chosen_cases(const Options& options, int capability) {
  std::vector<OpCase> chosen;
  for (OpCase& c : all_op_cases()) {
    if (wanted(options, c) && runs_on(c, capability)) chosen.push_back(std::move(c));
  }
  return chosen;
}

int run(const Options& options) {
  if (chosen_cases(options, 0).empty()) {
    throw no_case(options.all ? "case of a GPU" : "large case", options.ops, options.filter,
                  options.all ? "ops/ops.cmake lists the ops"
                              : "--all takes the small cases too; ops/ops.cmake lists the ops");
  }
  const auto device = gpu::open_device();
  const int capability = device->facts().capability;
  const std::vector<OpCase> cases = chosen_cases(options, capability);
  if (cases.empty()) {
    throw UserError(strprintf("a GPU of compute capability %d.%d has none of the cases that match",
                              capability / 10, capability % 10),
                    "choose others by --op and --filter");
  }
  Bench bench(*device, options);
  bench.header();
  for (const OpCase& c : cases) {
    if (!bench.device_broken()) bench.run(c);
  }
  return bench.finish();
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  assay::Options o;
  const std::string program = std::filesystem::path(argv[0]).filename();
  std::string ops = assay::ops_of(program);
  assay::BenchOptions options(
      program,
      "Time of the large cases of some ops on a GPU, with the share of its measured limit: "
      "the larger of bytes / copy and, of products, flops / matmul, over the median. More than "
      "100%: the op reads more than it writes, which memory does faster than a copy. A case with "
      "a wrong result is not timed and counts as failed. Needs a GPU. Ops: " +
          (ops.empty() ? "all" : ops));
  options.add("--op", "NAMES", ops,
              "ops or families, separated by spaces" +
                  std::string(ops.empty() ? "" : " (default: those above)"));
  options.add("--filter", "TEXT", o.filter, "cases whose name contains this");
  options.add("--all", o.all, "every case: with the small ones of the tests");
  options.add("--heat", o.heat_s, "seconds of the same work before the timed runs (default: 0.5)");
  options.add("--iters", o.iters, "timed runs per case (default: 50)");
  options.add("--json", o.json, "print one JSON object on stdout");
  if (const auto status = options.parse(argc, argv)) return *status;
  o.program = program;
  o.ops = assay::words(ops);
  try {
    if (options.given("--op")) assay::require_known_ops(o.ops);
    return assay::finish_standard_output(assay::run(o));
  } catch (const std::exception& error) {
    return assay::print_bench_error(error);
  }
}
