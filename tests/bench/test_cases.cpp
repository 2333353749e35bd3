// What bounds a case, its row of JSON, and the error if none is chosen.
#include "bench/cases.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("the ops that products bound are those with many operations for a byte") {
  constexpr double kOfElements = 64;  // more than any op has that computes element by element
  for (const OpCase& c : all_op_cases()) {
    if (c.size == CaseSize::kLarge) continue;
    const Cost cost = c.make().cost;
    if (cost.bytes == 0) continue;
    INFO(c.name);
    if (!multiplies(c)) REQUIRE(cost.flops / cost.bytes < kOfElements);
  }
  for (const char* op : {"linear_forward", "linear_wgrad", "grouped_linear_dgrad", "head_loss_eval",
                         "attention_backward", "newton_schulz", "varlen_attention"}) {
    REQUIRE(multiplies(OpCase{op, "a name", {}}));
  }
  for (const char* op :
       {"sparse_linear_backward", "swiglu_forward", "quantise", "router_forward"}) {
    REQUIRE(!multiplies(OpCase{op, "a name", {}}));
  }
}

TEST_CASE("a share is of the limit that allows less") {
  const Cost cost{.bytes = 1000, .flops = 8000};
  const Share of_copy = share_of(cost, 1e9, 1e10, 2), of_products = share_of(cost, 1e9, 4e9, 4);
  REQUIRE(of_copy.share == 0.5);
  REQUIRE(std::string(of_copy.bound) == "copy");
  REQUIRE(of_products.share == 0.5);
  REQUIRE(std::string(of_products.bound) == "matmul");
  REQUIRE(std::string(share_of(cost, 1e9, 0, 4).bound) == "copy");
}

TEST_CASE("a case's row of JSON has its median, its shortest time and what they are a share of") {
  const CaseTiming t = timing_of({4, 1, 2.5});
  REQUIRE(t.p50_us == 2.5);
  REQUIRE(json_fields(OpCase{"cast", "cast \"x\"", {}}, {.bytes = 1000, .flops = 8000}, t,
                      {0.25, "copy"}) ==
          R"("op": "cast", "case": "cast \"x\"", "p50_us": 2.500, "min_us": 1.000, "runs": 3, )"
          R"("bytes": 1000, "flops": 8000, "bound": "copy", "share": 0.2500)");
}

TEST_CASE("if no case is chosen the error repeats the choice and names the nearest op") {
  const UserError typo = no_case("large case", {"swiglu", "rmsnrm"}, "bf16", "look again");
  REQUIRE(std::string(typo.what()) == "no large case matches --op swiglu rmsnrm --filter bf16");
  REQUIRE(typo.hint() == "did you mean --op rmsnorm? look again");
  REQUIRE(no_case("case", {"rmsnorm_forward"}, "", "look again").hint() == "look again");
  REQUIRE(no_case("case", {}, "nothing", "").hint().empty());
}

}  // namespace assay
