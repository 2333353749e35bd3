// The case lists as a whole: names, large cases, and what a workbench counts.
#include <set>
#include <string>

#include "tests/catch.h"
#include "tests/ops/op_case.h"

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
