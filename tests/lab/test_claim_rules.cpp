// Claims that Student's interval alone would misjudge: shares of collapsed runs, losses at shares
// of runs with other horizons, steps read on a grid, losses of runs that stopped at a target.
#include <cmath>

#include "lab/matrix/claims.h"
#include "lab/matrix/judgeable.h"
#include "lab/runs/time_to_target.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/matrix_family.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_claim_rules {
namespace {

using enum MatrixClaim::Relation;
using planted_measures::claim;
using planted_measures::Planted;
using planted_measures::Table;

// The models a and b with as many seeds.
Table two_models(size_t seeds, double loss_of_a = 3, double loss_of_b = 3) {
  std::vector<Planted> planted;
  for (const auto& [model, loss] : {std::pair("a", loss_of_a), std::pair("b", loss_of_b)}) {
    for (size_t i = 0; i < seeds; ++i) planted.push_back({model, int64_t(i) + 1, loss, 0.5});
  }
  Table table({"a", "b"}, planted);
  for (SummaryRow& row : table.tables[0].rows) row.planned = int64_t(seeds);
  return table;
}

// a has collapsed in the seeds that have a 1, b in none.
Table collapsed_in(const std::vector<int>& a) {
  Table table = two_models(a.size());
  for (size_t i = 0; i < table.runs.size(); ++i)
    table.runs[i].health->dead_share = i < a.size() && a[i] == 1 ? 0.9 : 0;
  return table;
}

const char* const kNoNear = "the sign test tells shares apart, it cannot show them to be near";
const char* const kNoBound = "a share of the runs is tested against a bound between 0 and 1";

}  // namespace

TEST_CASE("a claim on collapsed runs is judged by the exact test of their number") {
  struct Row {
    const char* what;
    std::vector<int> a;
    MatrixClaim claim;
    const char* verdict;
    const char* why;
    std::optional<double> p;
    std::optional<int64_t> more;
  };
  const std::vector<int> five = {1, 1, 1, 1, 1}, six = {1, 1, 1, 1, 1, 1};
  const auto than_b = [](MatrixClaim::Relation r) { return claim("collapsed", "a", r, "b", 0); };
  const auto than = [](MatrixClaim::Relation r, double bound, double within = 0) {
    return claim("collapsed", "a", r, "", bound, within);
  };
  const Row rows[] = {
      {"five of five", five, than_b(kAbove), "undecided", "", 1 / 16.0, 1},
      {"four of five", {1, 1, 1, 1, 0}, than_b(kAbove), "undecided", "", 1 / 8.0, 2},
      {"six of six", six, than_b(kAbove), "holds", "", 1 / 32.0, {}},
      {"the other way round", six, than_b(kBelow), "fails", "", 1 / 32.0, {}},
      {"no difference", {0, 0, 0}, than_b(kAbove), "undecided", "", 1.0, {}},
      {"one seed", {1}, than_b(kAbove), "undecided", "one seed", {}, {}},
      {"near a model",
       six,
       claim("collapsed", "a", kNear, "b", 0, 0.5),
       "undecided",
       kNoNear,
       {},
       {}},
      {"half, five", five, than(kAbove, 0.5), "undecided", "", 1 / 16.0, 1},
      {"half, six", six, than(kAbove, 0.5), "holds", "", 1 / 32.0, {}},
      {"below half, six", six, than(kBelow, 0.5), "fails", "", 1 / 32.0, {}},
      {"near no collapse", {0, 0, 0, 0, 0, 0}, than(kNear, 0, 0.5), "holds", "", 1 / 32.0, {}},
      {"near half", six, than(kNear, 0.25, 0.25), "fails", "", 1 / 32.0, {}},
      {"above none", six, than(kAbove, 0), "undecided", kNoBound, {}, {}},
      {"above all", six, than(kAbove, 1), "undecided", kNoBound, {}, {}},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Table table = collapsed_in(row.a);
    const std::vector<MatrixClaim> claims = {row.claim};
    const auto results = evaluate_claims(claims, table.tables);
    const ClaimResult& r = results.front();
    REQUIRE(std::string(claim_verdict_name(r.verdict)) == row.verdict);
    REQUIRE(r.why == row.why);
    REQUIRE(r.p.has_value() == row.p.has_value());
    if (row.p) REQUIRE(std::abs(*r.p - *row.p) < 1e-12);
    REQUIRE(r.more_seeds == row.more);
    REQUIRE(!r.compared->interval95);
  }
}

TEST_CASE("a claim on collapsed runs shows their counts, and its p counts for Holm") {
  const Table table = collapsed_in({1, 1, 1, 1, 1, 1, 0});
  const std::vector<MatrixClaim> claims = {claim("collapsed", "a", kAbove, "b", 0),
                                           claim("collapsed", "b", kBelow, "", 0.5)};
  const auto results = evaluate_claims(claims, table.tables);
  REQUIRE(results[0].counts == "collapsed in 6 of 7 seeds and in 0 of 7");
  REQUIRE(results[1].counts == "collapsed in 0 of 7 seeds");
  REQUIRE(std::abs(results[0].p_holm.value() - 1 / 32.0) < 1e-12);
  REQUIRE(std::abs(results[1].p_holm.value() - 2 / 64.0) < 1e-12);
  const std::string text = claims_markdown(results, {});
  REQUIRE(text.find("| collapsed in 6 of 7 seeds and in 0 of 7 |") != std::string::npos);
  REQUIRE(text.find("the sign test on the seeds in which two models differ") != std::string::npos);
  REQUIRE(claims_markdown({}, {}).find("sign test") == std::string::npos);
}

TEST_CASE("claims on collapsed runs without a test are refused before anything is trained") {
  const matrix_family::Family family;
  const auto judge = [&](const std::string& bound) {
    require_judgeable_claims(family.matrix(
        "name: m\nmodels: {few: moe.yaml, moe: moe.yaml}\ncontracts: [{kind: steps}]\n"
        "precisions: [fp32]\nset: {telemetry.window: 10}\nclaims:\n"
        "  - {measure: collapsed, of: moe, " +
        bound + "}\n"));
  };
  expect_error([&] { judge("near: few, within: 0.2"); }, kNoNear);
  expect_error([&] { judge("above: 0"); }, kNoBound);
  REQUIRE_NOTHROW(judge("above: few"));
  REQUIRE_NOTHROW(judge("below: 0.5"));
}

TEST_CASE("a bound in percent of a measure from 0 to 1 is refused before anything is trained") {
  const matrix_family::Family family;
  const auto judge = [&](const std::string& claim) {
    require_judgeable_claims(family.matrix(
        "name: m\nmodels: {few: moe.yaml, moe: moe.yaml}\ncontracts: [{kind: steps}]\n"
        "precisions: [fp32, bf16]\nset: {telemetry.window: 10}\nclaims:\n  - {of: moe, " +
        claim + "}\n"));
  };
  for (const std::string measure :
       {"cv", "max_load", "max_load_worst", "entropy_min", "effective_share", "dead",
        "saturated_layers", "first_saturated_depth"}) {
    INFO(measure);
    const std::string of = "measure: " + measure + ", ";
    expect_error([&] { judge(of + "above: 50"); }, "has above: 50, but " + measure);
    expect_error([&] { judge(of + "below: -0.1"); }, "has below: -0.1, but " + measure);
    expect_error([&] { judge(of + "near: 5, within: 0.1"); }, "has near: 5, but " + measure);
    expect_error([&] { judge(of + "near: few, within: 5"); }, "has within: 5, but " + measure);
    expect_error([&] { judge(of + "below: -2, across: [fp32, bf16]"); }, "changes by -1 to 1");
    REQUIRE_NOTHROW(judge(of + "above: 0"));
    REQUIRE_NOTHROW(judge(of + "below: 1"));
    REQUIRE_NOTHROW(judge(of + "below: few"));
    REQUIRE_NOTHROW(judge(of + "near: few, within: 0.05"));
    REQUIRE_NOTHROW(judge(of + "below: -0.1, across: [fp32, bf16]"));
  }
  for (const char* claim : {"measure: step_cv, above: 2", "measure: effective_experts, above: 2",
                            "measure: max_load_by_depth, above: -0.5"}) {
    INFO(claim);
    REQUIRE_NOTHROW(judge(claim));
  }
  std::string hint;
  try {
    judge("measure: cv, above: 50");
  } catch (const UserError& error) {
    hint = error.hint();
  }
  REQUIRE(hint.starts_with("not percent: 50% is 0.5; docs/"));
}

TEST_CASE("one curve of two horizons is no difference at an equal share") {
  // The models have one loss as a function of the share, but for their seeds.
  std::vector<Planted> planted;
  for (const char* model : {"a", "b"}) {
    for (int64_t seed = 1; seed <= 4; ++seed) planted.push_back({model, seed, 3, 0.5});
  }
  Table table({"a", "b"}, planted);
  for (size_t i = 0; i < table.runs.size(); ++i) {
    RunRecord& run = table.runs[i];
    run.config.run.steps = i < 4 ? 720 : 886;
    run.val_loss_nats.clear();
    for (int64_t step = 60; step <= run.config.run.steps; step += 60) {
      const double share = double(step) / double(run.config.run.steps);
      const double noise = 1e-4 * double(run.config.run.seed) * (i < 4 ? 1 : -1);
      run.val_loss_nats.push_back({.step = step, .value = 3 + 0.3 / std::sqrt(share) + noise});
    }
  }
  const auto judged = [&](double share) {
    MatrixClaim below = claim("val_loss", "a", kBelow, "b", 0);
    below.at = share;
    return evaluate_claims({below}, table.tables).front();
  };
  // Step 60 is 8.33% of one training and 6.77% of the other.
  const ClaimResult early = judged(0.08);
  REQUIRE(early.verdict == ClaimVerdict::kUndecided);
  REQUIRE(early.why == "0 of 4 runs of a have the measure at 8%");
  // Between two evaluations of each: 288 of 720 and 354.4 of 886 steps.
  const ClaimResult later = judged(0.4);
  REQUIRE(later.why.empty());
  REQUIRE(std::abs(later.compared->mean) < 0.002);
}

TEST_CASE("a first saturation is known to the logged step before") {
  Table table = two_models(5);
  const int64_t of_a[] = {40, 60, 50, 30, 20}, of_b[] = {50, 70, 60, 40, 40};
  const auto judge = [&](int64_t log_every) {
    for (size_t i = 0; i < table.runs.size(); ++i) {
      LayerHealth& layer = table.runs[i].health->layers[2];
      layer.saturated_at = i < 5 ? of_a[i] : of_b[i - 5];
      layer.saturated_after = *layer.saturated_at - log_every;
    }
    return evaluate_claims({claim("first_saturation", "a", kBelow, "b", 0)}, table.tables).front();
  };
  const ClaimResult coarse = judge(10);
  REQUIRE(coarse.compared->mean == -12);
  REQUIRE(coarse.verdict == ClaimVerdict::kUndecided);
  REQUIRE(std::abs(coarse.compared->interval95->low + 26.553) < 0.001);
  REQUIRE(std::abs(coarse.compared->interval95->high - 2.553) < 0.001);
  REQUIRE(judge(1).verdict == ClaimVerdict::kHolds);
}

TEST_CASE("final losses of runs that stopped at their target decide nothing") {
  struct Row {
    const char* what;
    bool a, b;  // stopped
    MatrixClaim claim;
    bool judged;
  };
  const Row rows[] = {
      {"both", true, true, claim("val_loss", "a", kBelow, "b", 0), false},
      {"the best loss", true, true, claim("best_val_loss", "a", kBelow, "b", 0), false},
      {"a number", true, true, claim("val_loss", "a", kBelow, "", 9), false},
      {"one side ran to its end", true, false, claim("val_loss", "a", kBelow, "b", 0), true},
      {"one side, and by how much", true, false, claim("val_loss", "a", kBelow, "b", -0.1), false},
      {"one side, and how near", true, false, claim("val_loss", "a", kNear, "b", 0, 0.6), false},
      {"both ran to their end", false, false, claim("val_loss", "a", kBelow, "b", 0), true},
      {"what they were to show", true, true, claim("target_steps", "a", kBelow, "b", 0), true},
      {"the routers", true, true, claim("max_load", "a", kBelow, "b", 0), true},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Table table = two_models(3, 3.0, 3.2);
    for (size_t i = 0; i < table.runs.size(); ++i) {
      RunRecord& run = table.runs[i];
      for (EvalValue& v : run.val_loss_nats) v.value += 0.01 * double(i % 2);
      run.config.run.target_loss = 3.5;
      if (i < 3 ? row.a : row.b) run.config.run.steps = 200;
    }
    const auto results = evaluate_claims({row.claim}, table.tables);
    REQUIRE((results[0].why == kStoppedAtTarget) == !row.judged);
    if (row.judged) continue;
    REQUIRE(results[0].verdict == ClaimVerdict::kUndecided);
    REQUIRE(!results[0].p);
    REQUIRE(undecided_claims(results).empty());
  }
}

TEST_CASE("a comparison across precisions is of losses if no run of it stopped at its target") {
  planted_measures::Grid grid(
      [](const std::string&, const std::string& model, const std::string& precision, int64_t seed) {
        return 3 + (model == "moe" ? 0.1 : 0) + (precision == "nvfp4" ? 0.01 * double(seed) : 0);
      });
  MatrixClaim across = claim("val_loss", "moe", kAbove, "dense", 0);
  across.contract = "activeDN";
  across.across = {.over = ClaimAcross::Over::kPrecisions, .from = "bf16", .to = "nvfp4"};
  REQUIRE(evaluate_claims({across}, grid.tables)[0].why != kStoppedAtTarget);
  grid.runs.front().config.run.target_loss = 4;
  grid.runs.front().config.run.steps = 200;
  REQUIRE(evaluate_claims({across}, grid.tables)[0].why == kStoppedAtTarget);
}

}  // namespace assay::test_claim_rules
