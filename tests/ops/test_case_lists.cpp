// The case lists as a whole: names, large cases, workspaces, and what a workbench counts.
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/bf16.h"
#include "base/check.h"
#include "bench/cases.h"
#include "cuda/profile.h"
#include "tests/catch.h"
#include "tests/ops/op_case.h"
#include "tests/ops/op_run.h"

namespace assay {
namespace {

bool proves_a_reference(const OpCase& c) {
  return c.op.ends_with("_reference");
}

}  // namespace

TEST_CASE("no two cases have one name") {
  std::set<std::string> names;
  for (const OpCase& c : all_op_cases()) {
    CAPTURE(c.name);
    REQUIRE(names.insert(c.name).second);
  }
}

// What a GPU's benches time.
TEST_CASE("every op has a large case, but what moves little or proves a property") {
  const std::set<std::string> small{"global_norm_of_ranks", "linear_split_rows",
                                    "router_bias_update", "router_lead_sum", "router_margin"};
  std::set<std::string> ops, large;
  for (const OpCase& c : all_op_cases()) {
    if (proves_a_reference(c)) continue;
    ops.insert(c.op);
    if (c.size == CaseSize::kLarge) large.insert(c.op);
  }
  for (const std::string& op : ops) {
    CAPTURE(op);
    REQUIRE(large.contains(op) != small.contains(op));
  }
}

// By them bench_ops and bench_device choose the limit of products. Those of codes have one by their
// op.
TEST_CASE("the name of a product's case has its type") {
  for (const OpCase& c : all_op_cases()) {
    const bool of_codes = c.op == "scaled_linear" || c.op.starts_with("grouped_scaled");
    if (!multiplies(c) || proves_a_reference(c) || of_codes) continue;
    CAPTURE(c.name);
    REQUIRE((c.name.find(dtype_name<bf16>()) != std::string::npos ||
             c.name.find(dtype_name<float>()) != std::string::npos));
  }
}

// On the emulator a product of the library needs no workspace, so that the checks do not notice
// what a case of one leaves out.
TEST_CASE("the cases of ops that take a workspace say how large, and no others do") {
  const std::string takers =
      " dispatch_sort embedding_backward grouped_linear_dgrad grouped_linear_forward "
      "grouped_linear_wgrad grouped_scaled_linear grouped_scaled_swiglu_dgrad "
      "grouped_scaled_swiglu_forward grouped_swiglu_dgrad grouped_swiglu_forward head_loss "
      "head_loss_eval linear_dgrad linear_forward linear_split_rows linear_wgrad newton_schulz "
      "scaled_linear ";
  std::set<std::string> seen;
  for (const OpCase& c : all_op_cases()) {
    if (!seen.insert(c.op).second) continue;
    CAPTURE(c.name);
    const bool takes = takers.find(" " + c.op + " ") != std::string::npos;
    REQUIRE(bool(c.make().workspace) == takes);
  }
}

// An op without a scope is missing from every profile of a step. Each is called by its first small
// case: alone, where the case calls other ops too.
TEST_CASE("every op opens a profile scope") {
  std::set<std::string> called;
  for (const OpCase& c : all_op_cases()) {
    if (proves_a_reference(c) || c.body == OpBody::kGpu || c.size == CaseSize::kLarge) continue;
    if (called.contains(c.op)) continue;
    const OpInstance made = c.make();
    const OpInstance::Alone timed = made.timed();
    if (timed.cost.bytes == 0 || timed.cost.bytes > 1e7 || timed.cost.flops > 1e8) continue;
    called.insert(c.op);
    const CaseWorkspace workspace(made.workspace ? made.workspace(Backend::kCpu) : 0);
    made.run({.workspace = workspace.view()});
    Profile profile;
    timed.run({.workspace = workspace.view(), .profile = &profile});
    CAPTURE(c.name);
    REQUIRE(!profile.entries().empty());
  }
  REQUIRE(called.contains("router_margin"));
}

TEST_CASE("a workspace is aligned, and notices what is written behind it") {
  for (const int64_t bytes : {1, 64, 4800}) {
    CaseWorkspace workspace(bytes);
    const View<std::byte, 1> view = workspace.view();
    REQUIRE(reinterpret_cast<uintptr_t>(view.data) % 256 == 0);
    REQUIRE(view.dim[0] == bytes);
    std::memset(view.data, 0xFF, view.bytes());
    REQUIRE(!workspace.overwritten().has_value());
    view.data[bytes + 7] = std::byte{0};
    REQUIRE(workspace.overwritten() == bytes + 7);
  }
  const CaseWorkspace none(0);
  REQUIRE(none.view().empty());
  REQUIRE(!none.overwritten().has_value());
}

TEST_CASE("a case whose op writes behind the workspace that it asks for fails") {
  OpBackend backend{.program = "test_case_lists", .body = OpBody::kCpu, .variants = {}};
  backend.variants.push_back({"once", [] { return Exec{}; }});
  int64_t given = -1;
  const auto outcome = [&](int64_t asked, int64_t written) {
    const auto make = [&, asked, written] {
      const auto run = [&given, written](Exec on) {
        given = on.workspace.dim[0];
        for (int64_t i = 0; i < written; ++i) on.workspace[i] = std::byte{1};
      };
      OpInstance made{std::make_shared<Workbench>(), run, [](Report&) {}, {}};
      if (asked > 0) made.workspace = [asked](Backend) { return asked; };
      return made;
    };
    std::optional<CaseWorkspace> workspace;
    const OpCase c{"takes", strprintf("takes %ld of %ld", long(written), long(asked)), make};
    return run_case(backend, c, workspace, {1e300, 1e300});
  };
  REQUIRE(outcome(100, 100) == CaseOutcome::kPassed);
  REQUIRE(given == 100);
  REQUIRE(outcome(100, 101) == CaseOutcome::kFailed);
  REQUIRE(outcome(0, 0) == CaseOutcome::kPassed);
  REQUIRE(given == 0);
}

TEST_CASE("a workbench counts in and out once, acc twice, or what a case says") {
  Workbench bench;
  bench.in<float, 1>("in", {3});
  const View<float, 1> out = bench.out<float, 1>("out", {5});
  bench.acc<float, 1>("acc", {7});
  bench.tmp<float, 1>("tmp", {11});
  REQUIRE(bench.traffic() == 4 * (3 + 5 + 2 * 7));
  bench.must_move(out.rows(2, 1), 4);
  REQUIRE(bench.traffic() == 4 * (3 + 1 + 2 * 7));
  bench.must_move(View<float, 1>{}, 1000);
  REQUIRE(bench.traffic() == 4 * (3 + 1 + 2 * 7));
}

}  // namespace assay
