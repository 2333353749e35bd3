#include <cmath>

#include "lab/matrix/claims.h"
#include "lab/matrix/verdict_counts.h"
#include "tests/catch.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_matrix_claims {
namespace {

using planted_measures::claim;
using planted_measures::Grid;
using planted_measures::Planted;
using planted_measures::planted_table;
using planted_measures::run_of;
using planted_measures::Table;

// The results point into the table and the claims.
struct Judged {
  Table table;
  std::vector<MatrixClaim> claims;
  std::vector<ClaimResult> results;
};

// Validated every 24 steps, from `reached` on below a target.
void reach(RunRecord& run, int64_t reached) {
  run.config.run.target_loss = 3;
  run.val_loss_nats.clear();
  for (int64_t step = 24; step <= 240; step += 24)
    run.val_loss_nats.push_back({.step = step, .value = step < reached ? 4.0 : 2.9});
}

}  // namespace

TEST_CASE("a claim is judged by the interval over the seeds") {
  using enum MatrixClaim::Relation;
  struct Row {
    const char* what;
    MatrixClaim claim;
    const char* verdict;
    const char* why;
  };
  const Row rows[] = {
      {"well above a number", claim("max_load_worst", "full", kAbove, "", 0.8), "holds", ""},
      {"well below a number", claim("max_load_worst", "full", kBelow, "", 0.8), "fails", ""},
      {"a number in the interval", claim("max_load_worst", "full", kAbove, "", 0.91), "undecided",
       ""},
      {"above the interval", claim("max_load_worst", "full", kAbove, "", 1.1), "fails", ""},
      {"near a number", claim("max_load_worst", "full", kNear, "", 0.9, 0.1), "holds", ""},
      {"not near it", claim("max_load_worst", "full", kNear, "", 0.5, 0.1), "fails", ""},
      {"nearer than is known", claim("max_load_worst", "full", kNear, "", 0.92, 0.01), "undecided",
       ""},
      {"mean over layers", claim("max_load", "full", kNear, "", 0.6133, 0.05), "holds", ""},
      {"another model", claim("max_load_worst", "even", kBelow, "full", 0), "holds", ""},
      {"the other way round", claim("max_load_worst", "full", kBelow, "even", 0), "fails", ""},
      // The losses differ by up to 0.3 between seeds, but only by 0.09 to 0.1 within pairs.
      {"paired by seed", claim("val_loss", "even", kBelow, "full", 0), "holds", ""},
      {"alike", claim("dead", "even", kNear, "full", 0, 0.01), "undecided", kNoSpread},
      {"equal is not below", claim("dead", "even", kBelow, "full", 0), "undecided", kNoSpread},
      {"equal is not above", claim("dead", "even", kAbove, "", 0.5), "undecided", kNoSpread},
      {"falls after saturation", claim("loss_after_saturation", "full", kBelow, "", 0), "undecided",
       "2 of 3 runs of full have the measure"},
      {"deep first", claim("first_saturated_depth", "full", kAbove, "", 0.5), "undecided",
       kNoSpread},
      {"some runs have it", claim("first_saturation", "even", kAbove, "", 10), "undecided",
       "1 of 3 runs of even have the measure"},
      {"one seed", claim("max_load", "one", kBelow, "", 10), "undecided", "one seed"},
      {"one shared seed", claim("max_load", "one", kBelow, "full", 0), "undecided", "one seed"},
      {"no run", claim("max_load", "none", kBelow, "full", 0), "no run", ""},
      {"no run of the other", claim("max_load", "full", kBelow, "none", 0), "no run", ""},
  };
  const Table table = planted_table();
  for (const Row& row : rows) {
    INFO(row.what);
    const auto results = evaluate_claims({row.claim}, table.tables);
    REQUIRE(results.size() == 1);
    REQUIRE(std::string(claim_verdict_name(results[0].verdict)) == row.verdict);
    REQUIRE(results[0].why == row.why);
    REQUIRE(results[0].planned == 3);
  }
}

TEST_CASE("a claim that rests on runs that a guard stopped is undecided") {
  using enum MatrixClaim::Relation;
  struct Row {
    const char* what;
    std::vector<std::string> stopped;
    bool measured;  // a run of collapse_stop, of which the routers are known
    MatrixClaim claim;
    const char* verdict;
    const char* why;
    int64_t n;
  };
  const char* const one = "1 of 4 runs of even was stopped by a guard (non_finite)";
  const char* const rule = "1 of 4 runs of even was stopped by a guard (collapse_stop)";
  const Row rows[] = {
      {"none", {}, false, claim("val_loss", "even", kBelow, "full", 0), "holds", "", 3},
      {"a loss",
       {"non_finite"},
       false,
       claim("val_loss", "even", kBelow, "full", 0),
       "undecided",
       one,
       3},
      {"of the other model",
       {"non_finite"},
       false,
       claim("val_loss", "full", kAbove, "even", 0),
       "undecided",
       one,
       3},
      {"a router",
       {"non_finite"},
       false,
       claim("max_load_worst", "even", kBelow, "", 0.8),
       "undecided",
       one,
       3},
      {"another loss",
       {"collapse_stop"},
       true,
       claim("val_loss", "even", kBelow, "", 9),
       "undecided",
       rule,
       3},
      {"the loss afterwards",
       {"collapse_stop"},
       true,
       claim("loss_after_saturation", "even", kBelow, "", 9),
       "undecided",
       rule,
       0},
      {"what the rule stopped",
       {"collapse_stop"},
       true,
       claim("max_load_worst", "even", kBelow, "", 0.4),
       "undecided",
       "",
       4},
      {"what no run has",
       {"collapse_stop"},
       true,
       claim("first_saturation", "even", kAbove, "", 10),
       "undecided",
       "2 of 4 runs of even have the measure",
       2},
      {"two guards",
       {"non_finite", "collapse_stop"},
       true,
       claim("val_loss", "even", kBelow, "", 9),
       "undecided",
       "2 of 4 runs of even were stopped by a guard (collapse_stop, non_finite)",
       3},
      {"no run of the other",
       {"non_finite"},
       false,
       claim("max_load", "even", kBelow, "none", 0),
       "no run",
       one,
       0},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    Table table = planted_table();
    SummaryRow& even = table.tables[0].rows[1];
    even.planned = 4;
    even.stopped = row.stopped;
    const RunRecord collapsed = run_of({"even", 4, 5.0, 0.99, 5});
    if (row.measured) even.stopped_by_rule.runs.push_back(&collapsed);
    const auto results = evaluate_claims({row.claim}, table.tables);
    REQUIRE(results.size() == 1);
    REQUIRE(std::string(claim_verdict_name(results[0].verdict)) == row.verdict);
    REQUIRE(results[0].why == row.why);
    REQUIRE((results[0].compared ? results[0].compared->n : 0) == row.n);
    if (!results[0].why.empty()) REQUIRE(undecided_claims(results).empty());
  }
}

TEST_CASE("the table of claims shows the numbers and counts the verdicts") {
  using enum MatrixClaim::Relation;
  const Table table = planted_table();
  REQUIRE(claims_markdown({}, {}).empty());
  const std::vector<MatrixClaim> claims = {claim("max_load_worst", "full", kAbove, "", 0.8),
                                           claim("max_load_worst", "full", kBelow, "even", 0)};
  const ClaimSeal seal{.time = "2026-01-02T03:04:05Z",
                       .sha256 = std::string(64, 'a'),
                       .runs_begun = 0,
                       .edits = {{.time = "2026-01-03T00:00:00Z",
                                  .runs_finished = 2,
                                  .added = {"c"},
                                  .removed = {"d", "e"}}}};
  const std::string text = claims_markdown(evaluate_claims(claims, table.tables), seal);
  INFO(text);
  for (const char* part :
       {"max_load_worst of full > 0.8", "max_load_worst of full - even < 0", "| holds", "| fails",
        "0.8703 to 0.9697", "0.92", "0.31", "Of 2 claims 1 holds, 1 fails. ", "c (late)",
        "Sealed before the first run (2026-01-02T03:04:05Z, SHA-256 aaaaaaaaaaaaaaaa).",
        "Edited 2026-01-03T00:00:00Z, when 2 runs had finished: added \"c\"; removed \"d\", "
        "\"e\"."}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("a claim across contracts, precisions or shares is about the change of a comparison") {
  using enum MatrixClaim::Relation;
  using Over = ClaimAcross::Over;
  // moe - dense: +0.2 under activeDN, -0.1 under totalDN, 0.05 more in nvfp4.
  const Grid grid([](const std::string& contract, const std::string& model,
                     const std::string& precision, int64_t seed) {
    const double gap = contract == "activeDN" ? 0.2 : -0.1 + 0.002 * double(seed - 2);
    return 3 + 0.1 * double(seed) +
           (model == "moe" ? gap + (precision == "nvfp4" ? 0.05 + 0.001 * double(seed) : 0) : 0);
  });
  MatrixClaim contracts = claim("val_loss", "moe", kBelow, "dense", 0);
  contracts.across = {.over = Over::kContracts, .from = "activeDN", .to = "totalDN"};
  MatrixClaim precisions = contracts;
  precisions.across = {.over = Over::kPrecisions, .from = "bf16", .to = "nvfp4"};
  precisions.relation = kAbove;
  MatrixClaim shares = contracts;
  shares.across = {
      .over = Over::kShares, .from = "0.5", .to = "1", .from_share = 0.5, .to_share = 1};
  shares.contract = "totalDN";
  shares.precision = "bf16";
  MatrixClaim half = claim("val_loss", "moe", kAbove, "dense", 0);
  half.at = 0.5;
  half.contract = "totalDN";
  half.precision = "bf16";

  const auto by_contract = evaluate_claims({contracts}, grid.tables);
  REQUIRE(by_contract.size() == 2);  // one per precision
  REQUIRE(by_contract[0].contract == "activeDN to totalDN");
  REQUIRE(std::abs(by_contract[0].value->mean + 0.1) < 1e-12);
  REQUIRE(std::abs(by_contract[0].other->mean - 0.2) < 1e-12);
  REQUIRE(std::abs(by_contract[0].compared->mean + 0.3) < 1e-12);
  REQUIRE(by_contract[0].verdict == ClaimVerdict::kHolds);
  REQUIRE(contracts.text() == "val_loss of moe - dense, totalDN minus activeDN, < 0");

  const auto by_precision = evaluate_claims({precisions}, grid.tables);
  REQUIRE(by_precision.size() == 2);  // one per contract
  REQUIRE(by_precision[1].precision == "bf16 to nvfp4");
  REQUIRE(std::abs(by_precision[1].compared->mean - 0.052) < 1e-12);
  REQUIRE(by_precision[1].verdict == ClaimVerdict::kHolds);
  REQUIRE(by_precision[1].p.value() < 0.001);

  const auto by_share = evaluate_claims({shares}, grid.tables);
  REQUIRE(by_share.size() == 1);
  REQUIRE(std::abs(by_share[0].compared->mean + 0.5) < 1e-12);
  REQUIRE(by_share[0].why == kNoSpread);
  const auto at_half = evaluate_claims({half}, grid.tables);
  REQUIRE(at_half.size() == 1);
  REQUIRE(std::abs(at_half[0].compared->mean - 0.4) < 1e-12);
  REQUIRE(half.text() == "val_loss at 50% of moe - dense > 0");
  MatrixClaim nowhere = half;
  nowhere.at = 0.3;
  REQUIRE(evaluate_claims({nowhere}, grid.tables)[0].why ==
          "0 of 3 runs of moe have the measure at 30%");
}

TEST_CASE("claims without a run are named in one line, and counted") {
  using enum MatrixClaim::Relation;
  const Table table = planted_table();
  std::vector<MatrixClaim> claims = {claim("max_load_worst", "full", kAbove, "", 0.8),
                                     claim("max_load", "none", kBelow, "full", 0),
                                     claim("max_load", "full", kBelow, "none", 0)};
  claims[1].name = "later";
  claims[2].name = "too";
  const std::string text = claims_markdown(evaluate_claims(claims, table.tables), {});
  INFO(text);
  REQUIRE(text.find("\n2 claims have no run of a model yet: later; too.\n") != std::string::npos);
  REQUIRE(text.find("| no run") == std::string::npos);
  REQUIRE(text.find("Of 3 claims 1 holds, 2 no run. ") != std::string::npos);
  claims.erase(claims.begin());
  const std::string none = claims_markdown(evaluate_claims(claims, table.tables), {});
  REQUIRE(
      none.starts_with("## Claims\n\n2 claims have no run of a model yet: later; too.\n\nOf 2"));
}

TEST_CASE("verdicts say what is left of them after Holm, and how many seeds would decide") {
  using enum MatrixClaim::Relation;
  const Grid grid(
      [](const std::string&, const std::string& model, const std::string& precision, int64_t seed) {
        if (model == "dense") return 3.0;
        // Means 0.05 and 0.02, deviations 0.016 and 0.02.
        const double noise[] = {-0.016, 0.0, 0.016};
        return 3 + (precision == "bf16" ? 0.05 + noise[seed - 1] : 0.02 + 1.25 * noise[seed - 1]);
      });
  MatrixClaim above = claim("val_loss", "moe", kAbove, "dense", 0);
  above.contract = "activeDN";
  const std::vector<MatrixClaim> claims = {above};
  const auto results = evaluate_claims(claims, grid.tables);
  REQUIRE(results.size() == 2);
  REQUIRE(results[0].verdict == ClaimVerdict::kHolds);
  // t = 0.05 / (0.016 / sqrt(3)) = 5.4127 with 2 degrees of freedom: p = 1 - t / sqrt(2 + t^2), and
  // twice that for two claims.
  REQUIRE(std::abs(results[0].p.value() - 0.032480) < 1e-6);
  REQUIRE(std::abs(results[0].p_holm.value() - 0.064959) < 2e-6);
  REQUIRE(!results[0].after_holm());
  REQUIRE(!results[0].more_seeds);
  REQUIRE(results[1].verdict == ClaimVerdict::kUndecided);
  // 0.02 < t(0.975, n - 1) 0.02 / sqrt(n) until n = 7: t = 2.447 < sqrt(7) = 2.646.
  REQUIRE(results[1].more_seeds == 4);
  const std::string text = claims_markdown(results, {});
  REQUIRE(text.find("holds, not after Holm") != std::string::npos);
  // It is not among those that hold.
  REQUIRE(text.find("Of 2 claims 1 holds not after Holm, 1 undecided. ") != std::string::npos);
}

TEST_CASE("verdicts are counted, those that Holm's correction does not leave apart") {
  const auto result = [](ClaimVerdict verdict, std::optional<double> p_holm) {
    ClaimResult r;
    r.verdict = verdict;
    r.p = p_holm;
    r.p_holm = p_holm;
    return r;
  };
  VerdictCounts counts;
  REQUIRE(counts.text().empty());
  counts.add(result(ClaimVerdict::kFails, 0.08));
  counts.add(result(ClaimVerdict::kFails, 0.09));
  REQUIRE(counts.text() == "2 fail not after Holm");
  counts.add(result(ClaimVerdict::kUndecided, 0.9));
  counts.add(result(ClaimVerdict::kHolds, 0.05));
  counts.add(result(ClaimVerdict::kHolds, 0.051));
  counts.add(result(ClaimVerdict::kNoRun, std::nullopt));
  counts.add_untested();
  REQUIRE(counts.text() ==
          "1 holds, 1 holds not after Holm, 2 fail not after Holm, 1 undecided, 1 no run, "
          "1 untested");
}

TEST_CASE("a claim on steps to a target is no surer than the validations, nor than equal seeds") {
  using enum MatrixClaim::Relation;
  // dense: the steps at which its seeds reach the target, the other model as many validations
  // earlier.
  const auto judged = [](const std::vector<int64_t>& dense, int64_t earlier, double bound) {
    std::vector<Planted> planted;
    for (const char* model : {"dense", "moe"}) {
      for (size_t i = 0; i < dense.size(); ++i) planted.push_back({model, int64_t(i) + 1, 3, 0.3});
    }
    Judged j{.table = Table({"dense", "moe"}, planted), .claims = {}, .results = {}};
    for (size_t i = 0; i < j.table.runs.size(); ++i) {
      const bool is_dense = i < dense.size();
      reach(j.table.runs[i], is_dense ? dense[i] : dense[i - dense.size()] - 24 * earlier);
    }
    j.claims = {claim("target_steps", "moe", kBelow, "dense", bound),
                claim("target_steps", "dense", kAbove, "moe", -bound),
                claim("max_load_worst", "moe", kBelow, "", 0.2)};
    j.claims[2].name = "even";
    j.results = evaluate_claims(j.claims, j.table.tables);
    return j;
  };
  const Judged of_two = judged({72, 72}, 1, 0);
  const std::vector<ClaimResult>& two = of_two.results;
  for (const size_t i : {0u, 1u}) {
    REQUIRE(two[i].verdict == ClaimVerdict::kUndecided);
    REQUIRE(two[i].why == kNoSpread);
    REQUIRE(std::abs(two[i].compared->mean) == 24);
    REQUIRE(two[i].p.value() == 1);                      // the true steps may be equal
    REQUIRE((!two[i].more_seeds && !two[i].is_coarse));  // may be by chance
  }
  REQUIRE(undecided_claims(two).size() == 2);  // the first two have one name
  REQUIRE(claims_markdown(two, {}).find(std::string("undecided: ") + kNoSpread) !=
          std::string::npos);
  // Two validations earlier: the seeds are too few, and the claim counts in Holm's number.
  const std::vector<ClaimResult> far = judged({72, 72}, 2, 0).results;
  REQUIRE(far[0].why == kNoSpread);
  REQUIRE(far[0].p.value() == 0.5);
  REQUIRE((far[0].more_seeds == 4 && !far[0].is_coarse));
  REQUIRE(far[0].p_holm.value() == 1);
  // Six equal seeds are judged by the sign test, and by the resolution on both sides.
  const std::vector<int64_t> six(6, 96);
  const std::vector<ClaimResult> sure = judged(six, 2, 0).results;
  REQUIRE(sure[0].verdict == ClaimVerdict::kHolds);
  REQUIRE(sure[0].compared->interval95->low == -72);
  REQUIRE(sure[0].compared->interval95->high == -24);
  REQUIRE(sure[1].compared->interval95->low == 24);
  REQUIRE(sure[0].p.value() == 1 / 32.0);
  REQUIRE(judged(six, 1, 0).results[0].verdict == ClaimVerdict::kUndecided);
  REQUIRE(judged(six, 1, 30).results[0].verdict == ClaimVerdict::kHolds);
  // Other steps, but the same difference in each seed.
  REQUIRE(judged({72, 96, 72}, 1, 0).results[0].why == kNoSpread);
}

TEST_CASE("seeds are added to claims that seeds can decide, not for want of validations") {
  using enum MatrixClaim::Relation;
  struct Row {
    const char* what;
    std::vector<int64_t> reached;  // steps, each known to the 24 before
    MatrixClaim claim;
    bool open;
    const char* more;
  };
  const auto steps = [](double bound) { return claim("target_steps", "a", kBelow, "", bound); };
  const Row rows[] = {
      // Mean 96, standard error 13.9: it may be 72 to 96.
      {"a bound between two validations",
       {72, 96, 120},
       steps(90),
       false,
       "validations too far apart"},
      {"equal seeds beside it", {96, 96, 96}, steps(90), false, "validations too far apart"},
      {"equal seeds on it", {96, 96, 96}, steps(96), false, "validations too far apart"},
      {"six equal seeds", {96, 96, 96, 96, 96, 96}, steps(90), false, "validations too far apart"},
      {"a bound above", {72, 96, 120}, steps(130), true, "2"},
      {"equal seeds above", {96, 96, 96}, steps(70), true, "3"},
      // Mean 132, standard error 60.
      {"two seeds beside it", {72, 96}, steps(80), true, ">1000"},
      {"a spread above a validation", {72, 192}, steps(120), true, ">1000"},
      {"one seed", {96}, steps(90), true, "-"},
      // Equal values on the bound are not below it, which six of them decide.
      {"equal loads on the bound",
       {96, 96, 96},
       claim("max_load_worst", "a", kBelow, "", 0.5),
       true,
       "3"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    std::vector<Planted> planted;
    for (size_t i = 0; i < row.reached.size(); ++i) planted.push_back({"a", int64_t(i), 3, 0.5});
    Table table({"a"}, planted);
    for (size_t i = 0; i < row.reached.size(); ++i) reach(table.runs[i], row.reached[i]);
    const std::vector<MatrixClaim> claims = {row.claim};
    const auto results = evaluate_claims(claims, table.tables);
    REQUIRE(results[0].verdict == ClaimVerdict::kUndecided);
    REQUIRE(undecided_claims(results).size() == (row.open ? 1 : 0));
    REQUIRE(claims_markdown(results, {}).find(std::string(" ") + row.more + " |\n") !=
            std::string::npos);
  }
}

TEST_CASE("a claim about seconds of two machines is undecided") {
  using Relation = MatrixClaim::Relation;
  Table t = planted_table();
  double seconds = 1;  // no two differences are the same
  for (RunRecord& run : t.runs) {
    run.device = "cpu";
    run.threads = "4";
    run.train_s = {{100, seconds *= 2}};
  }
  const auto judged = [&] {
    return evaluate_claims({claim("step_seconds", "even", Relation::kBelow, "full", 0)}, t.tables)
        .front();
  };
  REQUIRE(judged().why.empty());
  t.runs.back().threads = "8";  // of another model
  REQUIRE(judged().why.empty());
  t.runs[3].threads = "8";
  REQUIRE(judged().verdict == ClaimVerdict::kUndecided);
  REQUIRE(judged().why == "even-seed1 ran on cpu, 8 threads, even-seed2 on cpu, 4 threads");
}

}  // namespace assay::test_matrix_claims
