#include "tests/ops/op_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/instruction_sets.h"

namespace assay {
namespace {

using Outcome = CaseOutcome;

// Of a workspace, as much is poisoned. That of the library's products is larger, and they write it
// before they read it.
constexpr size_t kMostPoison = size_t{4} << 20;

// So many bytes and no more: in planned memory an op that uses more would overwrite another buffer.
View<std::byte, 1> poisoned(std::optional<CaseWorkspace>& workspace, int64_t bytes) {
  if (!workspace || workspace->view().dim[0] != bytes) workspace.emplace(bytes);
  const View<std::byte, 1> view = workspace->view();
  if (bytes > 0) std::memset(view.data, 0xFF, std::min(view.bytes(), kMostPoison));
  return view;
}

// Returns what was written behind the workspace; empty: nothing.
std::string run_variant(const OpBackend& backend, const OpBackend::Variant& variant,
                        const OpInstance& instance, std::optional<CaseWorkspace>& workspace) {
  instance.bench->restore();
  Exec on = variant.begin();
  const Backend asks = on.gpu ? Backend::kGpu : Backend::kCpu;
  const int64_t bytes = instance.workspace ? instance.workspace(asks) : 0;
  on.workspace = poisoned(workspace, bytes);
  Workbench& bench = *instance.bench;
  const bool in_copy = variant.buffers == OpBackend::Variant::Buffers::kACopy;
  if (in_copy) {
    bench.place_copies(backend.copies, 1);
    bench.use_copy(0);
  }
  instance.run(on);
  if (backend.wait) backend.wait();
  if (in_copy) {
    bench.fetch_copy();
    bench.use_copy(-1);
    bench.place_copies(backend.copies, 0);
  }
  const std::optional<int64_t> behind = workspace->overwritten();
  if (!behind) return "";
  workspace.reset();  // the next has an intact sentinel
  return strprintf("the op asks for %ld bytes of workspace, but byte %ld was overwritten",
                   long(bytes), long(*behind));
}

std::vector<std::string> outside(const Report& report, double& used) {
  std::vector<std::string> failures;
  for (const auto& r : report.comparisons()) {
    used = std::max(used, r.used);
    if (r.outside == 0) continue;
    char text[256];
    std::snprintf(text, sizeof text, "%s[%ld]: got %.9g, want %.9g, tolerance %.3g, %ld outside",
                  r.tensor.c_str(), long(r.worst_index), r.got, r.want, r.tolerance,
                  long(r.outside));
    failures.push_back(text);
  }
  return failures;
}

// The cost function's bytes must be those that the buffers of the case move.
std::vector<std::string> wrong_cost(const OpInstance& instance) {
  const Cost cost = instance.timed().cost;
  if (cost.bytes == 0 && cost.flops == 0) return {};  // the proof of a reference, or not timed
  const double moved = instance.bench->traffic();
  if (cost.bytes == moved) return {};
  return {strprintf("cost: %.0f bytes, but the buffers of the case move %.0f", cost.bytes, moved)};
}

// Cost limit of --small, for compute-sanitizer, which makes a kernel a hundred times slower.
constexpr Cost kAll = {1e300, 1e300}, kSmall = {1e6, 2e7};
// Cost limit of --sanitized, for the host's sanitizers: every kind of case except the sizes of real
// models. Variants that only repeat are skipped too.
constexpr Cost kSanitized = {1.2e7, 1e8};

// The sizes of cases to run.
enum class Sizes { kUsual, kLarge, kEvery };
bool runs(Sizes sizes, CaseSize size) {
  return sizes == Sizes::kEvery || (sizes == Sizes::kLarge) == (size == CaseSize::kLarge);
}

OpBackend without_repeats(OpBackend backend) {
  std::erase_if(backend.variants, [](const OpBackend::Variant& v) {
    return v.aim == OpBackend::Variant::Aim::kSameBits;
  });
  return backend;
}

}  // namespace

CaseOutcome run_case(const OpBackend& backend, const OpCase& c,
                     std::optional<CaseWorkspace>& workspace, Cost most) {
  if (!runs_on(c, backend.capability)) {
    std::printf("--   %s | skipped: not on a GPU of compute capability %d.%d\n", c.name.c_str(),
                backend.capability / 10, backend.capability % 10);
    return Outcome::kLeftOut;
  }
  const OpInstance instance = c.make();
  const Cost& cost = instance.cost;
  const bool needed = backend.checks_races && c.race_checked_at_any_cost;
  const bool slow = !needed && backend.seconds && backend.seconds(cost) > backend.most_seconds;
  std::vector<std::string> failures = wrong_cost(instance);
  if (failures.empty() && (slow || cost.bytes > most.bytes || cost.flops > most.flops)) {
    std::printf("--   %s | skipped: too expensive here\n", c.name.c_str());
    return Outcome::kLeftOut;
  }
  double used = 0;
  Report report;
  std::vector<std::byte> first;
  const auto& variants = c.size == CaseSize::kLarge ? backend.variants_of_large : backend.variants;
  for (size_t i = 0; i < variants.size(); ++i) {
    const OpBackend::Variant& variant = variants[i];
    try {
      const std::string behind = run_variant(backend, variant, instance, workspace);
      if (!behind.empty()) failures.push_back(variant.name + ": " + c.op + ": " + behind);
    } catch (const std::exception& error) {
      failures.push_back(variant.name + ": " + error.what());
      break;
    }
    if (i == 0) {
      instance.check(report);
      for (const std::string& f : outside(report, used)) failures.push_back(f);
      if (variants.size() > 1) first = instance.bench->results();
    } else if (!instance.bench->gave(first)) {
      failures.push_back(variant.name + ": bits differ from " + variants[0].name);
    }
    for (const std::string& d : instance.bench->damage())
      failures.push_back(variant.name + ": " + d);
  }
  std::printf("%s %s", failures.empty() ? "ok  " : "FAIL", c.name.c_str());
  if (!report.comparisons().empty()) std::printf(" | %.0f%% of tolerance", 100 * used);
  std::printf("\n");
  for (const auto& f : failures) std::printf("     %s\n", f.c_str());
  if (!failures.empty()) {
    std::printf("     to repeat: %s --filter '%s'\n", backend.program, c.name.c_str());
  }
  std::fflush(stdout);
  return failures.empty() ? Outcome::kPassed : Outcome::kFailed;
}

namespace {

// --shard I/N runs every N-th selected case starting with the I-th, so that N processes share them.
struct Shard {
  int64_t index = 0, of = 1;
};
bool read_shard(const char* text, Shard& shard) {
  long index = 0, of = 0;
  if (std::sscanf(text, "%ld/%ld", &index, &of) != 2 || index < 0 || index >= of) return false;
  shard = {index, of};
  return true;
}

std::string name_of(const OpBackend& backend) {
  const std::string words = backend.program;
  return words.substr(0, words.find(' '));
}

int print_help(const OpBackend& backend) {
  std::printf(
      "Runs the cases of the ops and compares them with their references; exits 1 if one fails.\n"
      "usage: %s [OPTIONS]\n\n"
      "  -h, --help         print this help and exit\n"
      "  --op NAME          only this op, or this family: rmsnorm is rmsnorm_forward and others\n"
      "  --filter TEXT      only cases whose name contains this\n"
      "  --list             print the names of the cases and run none\n"
      "  --small            only cheap cases, for compute-sanitizer\n"
      "  --sanitized        without the sizes of real models, and each case once\n"
      "  --shard I/N        every N-th case from the I-th on (0/4), to share them out\n"
      "  --stop-at-failure  end with the first case that fails\n",
      name_of(backend).c_str());
  if (!backend.variants_of_large.empty()) {
    std::printf("  --large            only the large cases, the sizes of training%s\n",
                backend.large == OpBackend::Large::kAlways ? " (default: all)" : "");
  }
  std::printf("%s", backend.own_options);
  return 0;
}

int refuse(const OpBackend& backend, const std::string& problem) {
  const std::string name = name_of(backend);
  std::fprintf(stderr, "error: %s: %s\nhint: `%s --help` lists the options\n", name.c_str(),
               problem.c_str(), name.c_str());
  return 1;
}

// Says why nothing ran: the op does not exist, or it has no such case here.
void say_no_case(const OpBackend& backend, const std::string& op) {
  std::set<std::string> names;
  bool known = false;
  for (const OpCase& c : all_op_cases()) {
    names.insert(c.op);
    known = known || selected(c, op, "");
  }
  if (known) {
    std::fprintf(stderr, "error: %s: no case matches\nhint: --list prints the cases\n",
                 backend.program);
    return;
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  std::fprintf(stderr, "error: %s: there is no op %s\nhint: the ops are %s\n", backend.program,
               op.c_str(), all.c_str());
}

}  // namespace

int op_check_main(int argc, char** argv, OpBackend backend) {
  require_instruction_sets();
  std::string op, filter;
  bool list = false, stop_at_failure = false;
  Cost most = kAll;
  Sizes sizes = backend.large == OpBackend::Large::kAlways ? Sizes::kEvery : Sizes::kUsual;
  Shard shard;
  int64_t chosen = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--list") {
      list = true;
    } else if (flag == "--stop-at-failure") {
      stop_at_failure = true;
    } else if (flag == "--small") {
      most = kSmall;
      sizes = Sizes::kUsual;
    } else if (flag == "--sanitized") {
      most = kSanitized;
      sizes = Sizes::kUsual;
      backend = without_repeats(std::move(backend));
    } else if (flag == "--large" && !backend.variants_of_large.empty()) {
      sizes = Sizes::kLarge;
    } else if (flag == "--op" || flag == "--filter" || flag == "--shard") {
      if (i + 1 == argc) return refuse(backend, flag + " needs a value");
      const std::string value = argv[++i];
      if (flag == "--shard") {
        if (!read_shard(value.c_str(), shard))
          return refuse(backend, "--shard " + value + " is not I/N with I from 0 to N - 1");
        continue;
      }
      std::string& text = flag == "--op" ? op : filter;
      if (!text.empty()) return refuse(backend, flag + " is given twice");
      text = value;
    } else if (flag == "--help" || flag == "-h") {
      return print_help(backend);
    } else {
      return refuse(backend, "unknown option " + flag);
    }
  }
  std::optional<CaseWorkspace> workspace;
  int done = 0, failed = 0, left_out = 0;
  for (const OpCase& c : all_op_cases()) {
    if (!selected(c, op, filter)) continue;
    const bool cpu = backend.body == OpBody::kCpu;
    if (c.body == (cpu ? OpBody::kGpu : OpBody::kCpu)) continue;
    if (!runs(sizes, c.size)) continue;
    if (chosen++ % shard.of != shard.index) continue;
    ++done;
    if (list) {
      std::printf("%s\n", c.name.c_str());
      continue;
    }
    const Outcome outcome = run_case(backend, c, workspace, most);
    failed += outcome == Outcome::kFailed;
    left_out += outcome == Outcome::kLeftOut;
    if (outcome == Outcome::kFailed && stop_at_failure) break;
    if (outcome == Outcome::kFailed && backend.broken && backend.broken()) {
      std::printf("the device is unusable after this case; the remaining cases are skipped\n");
      break;
    }
  }
  if (!list) {
    std::printf("%d cases, %d failed", done - left_out, failed);
    if (left_out > 0) std::printf(", %d skipped", left_out);
    std::printf("\n");
  }
  if (chosen == 0) say_no_case(backend, op);
  if (failed > 0 || chosen == 0) return 1;
  // With several shards, one may have only skipped cases.
  return shard.of == 1 && done == left_out ? kAllSkipped : 0;
}

}  // namespace assay
