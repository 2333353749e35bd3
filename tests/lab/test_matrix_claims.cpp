#include <cmath>
#include <set>

#include "lab/matrix/claims.h"
#include "lab/matrix/gap.h"
#include "lab/matrix/report.h"
#include "lab/runs/run_measures.h"
#include "tests/catch.h"
#include "tests/lab/run_records.h"

namespace assay::test_matrix_claims {
namespace {

// The measures of a run's layers 1, 2 and 3, as its telemetry would give them.
struct Planted {
  std::string model;
  int64_t seed;
  double loss;
  double load;                               // K max_load of layer 3; the others have half of it
  std::optional<int64_t> saturated_at = {};  // of layer 3
};

RunRecord run_of(const Planted& planted) {
  RunRecord run =
      hand_made({.name = planted.model + "-seed" + std::to_string(planted.seed),
                 .seed = planted.seed,
                 .val_loss_nats = {{50, planted.loss + 1, 10}, {100, planted.loss, 10}}});
  std::vector<LayerHealth> layers;
  for (int64_t layer = 1; layer <= 3; ++layer) {
    LayerHealth& l = layers.emplace_back();
    l.layer = layer;
    l.max_load_norm = layer == 3 ? planted.load : planted.load / 2;
    l.active_norm = 0.25;
    l.cv_norm = planted.load;
  }
  layers[2].saturated_at = planted.saturated_at;
  run.health = health_of(layers, 64, 8);
  return run;
}

// One table with a row per model, each with its runs.
struct Table {
  std::vector<RunRecord> runs;
  std::vector<Cell> cells;
  std::vector<ContractTable> tables;

  Table(const std::vector<std::string>& models, const std::vector<Planted>& planted) {
    for (const Planted& p : planted) runs.push_back(run_of(p));
    for (const std::string& model : models) {
      Cell& cell = cells.emplace_back();
      cell.model = model;
      cell.contract = "steps";
      cell.precision = "bf16";
    }
    ContractTable& table = tables.emplace_back();
    table.contract.name = "steps";
    for (const Cell& cell : cells) {
      SummaryRow& row = table.rows.emplace_back();
      row.cell = &cell;
      row.planned = 3;
      for (size_t i = 0; i < planted.size(); ++i) {
        if (planted[i].model == cell.model) row.runs.runs.push_back(&runs[i]);
      }
    }
  }
};

// The models "even" and "full" have three seeds, "one" has one, "none" has none.
Table planted_table() {
  return Table({"full", "even", "one", "none"}, {{"full", 1, 4.00, 0.90, 40},
                                                 {"full", 2, 4.30, 0.92, 60},
                                                 {"full", 3, 4.10, 0.94, 20},
                                                 {"even", 1, 3.90, 0.30},
                                                 {"even", 2, 4.21, 0.32},
                                                 {"even", 3, 4.02, 0.31, 80},
                                                 {"one", 2, 4.00, 0.10}});
}

MatrixClaim claim(const std::string& measure, const std::string& of, MatrixClaim::Relation relation,
                  const std::string& other, double number, double within = 0) {
  MatrixClaim c;
  c.name = "c";
  c.measure = measure;
  c.of = of;
  c.relation = relation;
  c.other = other;
  c.number = number;
  c.within = within;
  return c;
}

// Two models under two contracts in two precisions, three seeds; loss(contract, model, precision)
// plus a tenth of the seed at the end, and 1 more at half of the run.
struct Grid {
  std::vector<RunRecord> runs;
  std::vector<Cell> cells;
  std::vector<ContractTable> tables;

  template <typename Loss>
  explicit Grid(const Loss& loss) {
    runs.reserve(24);
    cells.reserve(8);
    for (const char* contract : {"activeDN", "totalDN"}) {
      ContractTable& table = tables.emplace_back();
      table.contract.name = contract;
      for (const char* model : {"dense", "moe"}) {
        for (const char* precision : {"bf16", "nvfp4"}) {
          Cell& cell = cells.emplace_back();
          cell.model = model;
          cell.contract = contract;
          cell.precision = precision;
          SummaryRow& row = table.rows.emplace_back();
          row.cell = &cell;
          row.planned = 3;
          for (int64_t seed = 1; seed <= 3; ++seed) {
            const double end =
                loss(std::string(contract), std::string(model), std::string(precision), seed);
            runs.push_back(hand_made(
                {.name = "r",
                 .seed = seed,
                 .val_loss_nats = {{50, end + (model[0] == 'm' ? 1.5 : 1), 10}, {100, end, 10}}}));
            row.runs.runs.push_back(&runs.back());
          }
        }
      }
    }
  }
};

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
      {"alike", claim("dead", "even", kNear, "full", 0, 0.01), "holds", ""},
      {"equal is not below", claim("dead", "even", kBelow, "full", 0), "fails", ""},
      {"equal is not above", claim("dead", "even", kAbove, "full", 0), "fails", ""},
      {"falls after saturation", claim("loss_after_saturation", "full", kBelow, "", 0), "undecided",
       "2 of 3 runs of full have the measure"},
      {"deep first", claim("first_saturated_depth", "full", kAbove, "", 0.5), "holds", ""},
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
        "0.8703 to 0.9697", "0.92", "0.31", "1 of 2 hold, 1 fail", "c (late)",
        "Sealed before the first run (2026-01-02T03:04:05Z, SHA-256 aaaaaaaaaaaaaaaa).",
        "Edited 2026-01-03T00:00:00Z, when 2 runs had finished: added \"c\"; removed \"d\", "
        "\"e\"."}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("measures of a run") {
  const RunRecord run = run_of({"a", 1, 4.0, 0.95, 40});
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run).value(); };
  REQUIRE(value("val_loss") == 4.0);
  REQUIRE(value("loss_after_saturation") == -1.0);
  REQUIRE(value("max_load_worst") == 0.95);
  REQUIRE(std::abs(value("max_load") - 0.95 * 2 / 3) < 1e-12);
  REQUIRE(std::abs(value("max_load_by_depth") - 0.475) < 1e-12);
  REQUIRE(value("dead") == 0.75);
  REQUIRE(std::abs(value("saturated_layers") - 1.0 / 3) < 1e-12);
  REQUIRE(value("first_saturation") == 40);
  REQUIRE(value("first_saturated_depth") == 1);
  REQUIRE(first_saturated_layers(run) == std::vector<int64_t>{3});
  // A run without a measure has no value for it.
  const RunRecord dense = hand_made({.name = "d", .val_loss_nats = {{100, 3.0, 10}}});
  const RunRecord late = run_of({"b", 1, 4.0, 0.95, 100});
  const std::set<std::string> of_dense = {"val_loss", "best_val_loss", "step_seconds"};
  for (const RunMeasure& measure : run_measures()) {
    INFO(measure.name);
    REQUIRE(measure.of(dense).has_value() == of_dense.contains(measure.name));
  }
  REQUIRE(!find_run_measure("loss_after_saturation")->of(late));
  REQUIRE(find_run_measure("max_laod") == nullptr);
}

TEST_CASE("measures of a run's losses and of its target") {
  RunRecord run =
      hand_made({.name = "a", .val_loss_nats = {{20, 4.0, 10}, {40, 3.1, 10}, {60, 3.2, 10}}});
  run.val_bits_per_byte = {{20, 2.0, 10}, {60, 1.6, 10}};
  const auto value = [&](const char* name) { return find_run_measure(name)->of(run); };
  REQUIRE(value("val_loss") == 3.2);
  REQUIRE(value("best_val_loss") == 3.1);
  REQUIRE(value("bits_per_byte") == 1.6);
  REQUIRE(value("step_seconds") == 0.5);
  REQUIRE(!value("target_steps"));  // none is set
  run.config.run.target_loss = 3.28;
  REQUIRE(value("target_steps") == 40);
  REQUIRE(value("target_tokens") == 40 * 1000);
  REQUIRE(value("target_seconds") == 20);
  REQUIRE(value("target_flops") == 40 * 1000 * 30);
  run.config.run.target_loss = 3;
  REQUIRE(!value("target_steps"));  // it was not reached
  run = run_of({"b", 1, 4.0, 0.95});
  run.config.model.moe.emplace().experts = 64;
  run.health->min_entropy_norm = 0.5;
  REQUIRE(std::abs(value("effective_experts").value() - 8) < 1e-12);
}

TEST_CASE("a claim across contracts, precisions or shares is about the change of a comparison") {
  using enum MatrixClaim::Relation;
  using Over = ClaimAcross::Over;
  // moe - dense: +0.2 under activeDN, -0.1 under totalDN, 0.05 more in nvfp4.
  const Grid grid([](const std::string& contract, const std::string& model,
                     const std::string& precision, int64_t seed) {
    const double gap = contract == "activeDN" ? 0.2 : -0.1;
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
  const auto at_half = evaluate_claims({half}, grid.tables);
  REQUIRE(at_half.size() == 1);
  REQUIRE(std::abs(at_half[0].compared->mean - 0.4) < 1e-12);
  REQUIRE(half.text() == "val_loss at 50% of moe - dense > 0");
  MatrixClaim nowhere = half;
  nowhere.at = 0.3;
  REQUIRE(evaluate_claims({nowhere}, grid.tables)[0].why ==
          "0 of 3 runs of moe have the measure at 30%");
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
}

TEST_CASE("the gap over training, and its trend") {
  const Grid grid(
      [](const std::string&, const std::string& model, const std::string&, int64_t seed) {
        return 3 + 0.1 * double(seed) + (model == "moe" ? 0.2 + 0.01 * double(seed) : 0);
      });
  const std::vector<GapCurve> curves = gap_curves(grid.tables[0]);
  REQUIRE(curves.size() == 3);  // of dense nvfp4, moe bf16, moe nvfp4
  REQUIRE(curves[0].points.at(1).gap.mean == 0);
  const GapCurve& moe = curves[1];
  REQUIRE(moe.points.size() == 2);
  REQUIRE(moe.points[0].share == 0.5);
  REQUIRE(std::abs(moe.points[0].gap.mean - 0.72) < 1e-12);
  REQUIRE(std::abs(moe.points[1].gap.mean - 0.22) < 1e-12);
  REQUIRE(std::abs(moe.points[1].gap.sd.value() - 0.01) < 1e-12);
  REQUIRE(!moe.trend);  // two evaluations make no trend
  const std::string text = gap_markdown(grid.tables[0]);
  INFO(text);
  for (const char* part :
       {"| 50%", "| 100%", "moe bf16", "+0.2200 ± 0.0248", "minus dense bf16's"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("the trend of a loss is its slope per doubling of the tokens") {
  RunRecord run = hand_made(
      {.name = "a", .val_loss_nats = {{5, 9.0, 10}, {20, 4.0, 10}, {40, 3.7, 10}, {80, 3.4, 10}}});
  const auto trend = find_run_measure("val_loss_trend")->of;
  REQUIRE(std::abs(trend(run).value() + 0.3) < 1e-12);  // the first is before a tenth of the run
  run.val_loss_nats.pop_back();
  REQUIRE(!trend(run));
}

TEST_CASE("a loss inside a run that is not finite is no value, and takes no others away") {
  for (const double lost : {double(NAN), double(INFINITY)}) {
    Grid grid([](const std::string&, const std::string& model, const std::string&, int64_t seed) {
      return 3 + 0.1 * double(seed) + (model == "moe" ? 0.2 : 0);
    });
    SummaryRow& moe = grid.tables[0].rows[2];
    RunRecord& run = grid.runs[6];
    REQUIRE(moe.runs.runs.front() == &run);
    run.val_loss_nats = {{20, 4.0, 10}, {50, lost, 10}, {80, 3.5, 10}, {100, 3.3, 10}};
    run.val_bits_per_byte = {{50, lost, 10}, {100, 1.5, 10}};
    const auto value = [&](const char* name) { return find_run_measure(name)->of(run); };
    REQUIRE(!find_run_measure("val_loss")->at(run, 0.5));
    REQUIRE(!find_run_measure("bits_per_byte")->at(run, 0.5));
    REQUIRE(!value("val_loss_trend"));
    REQUIRE((value("val_loss") == 3.3 && value("best_val_loss") == 3.3));
    const std::vector<GapCurve> curves = gap_curves(grid.tables[0]);
    REQUIRE(curves[1].points.size() == 1);
    REQUIRE(curves[1].points[0].share == 1);
    MatrixClaim half = claim("val_loss", "moe", MatrixClaim::Relation::kAbove, "dense", 0);
    half.at = 0.5;
    REQUIRE(evaluate_claims({half}, grid.tables)[0].why ==
            "2 of 3 runs of moe have the measure at 50%");
  }
  RunRecord run = run_of({"a", 1, 4.0, 0.95, 40});
  run.val_loss_nats[0].value = NAN;
  REQUIRE(!find_run_measure("loss_after_saturation")->of(run));
}

TEST_CASE("the table of routers has the runs that the rule ended, and the models' windows") {
  Table t = planted_table();
  for (SummaryRow& row : t.tables[0].rows) {
    if (!row.runs.runs.empty()) row.worst_load = 0.9;
  }
  const RunRecord collapsed = run_of({"even", 4, 5.0, 0.99, 5});
  t.tables[0].rows[1].stopped_by_rule.runs.push_back(&collapsed);
  const Matrix matrix;
  const auto has = [&](const std::string& part) {
    MatrixSummary summary;
    summary.matrix = &matrix;
    summary.tables = t.tables;
    const std::string text = summary_markdown(summary);
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  for (Cell& cell : t.cells) cell.config.telemetry.window = 8;
  REQUIRE(has("0.480 ± 0.340"));  // of 0.30, 0.32, 0.31 and 0.99
  REQUIRE(has(" -, -, 3, 3 "));
  REQUIRE(has("experts over the last 8 logged steps"));
  t.cells[1].config.telemetry.window = 20;
  REQUIRE(has("experts over the last 8 to 20 logged steps"));
}

TEST_CASE("a claim about seconds of two machines is undecided") {
  using Relation = MatrixClaim::Relation;
  Table t = planted_table();
  for (RunRecord& run : t.runs) {
    run.device = "cpu";
    run.threads = "4";
    run.train_s = {{100, double(run.config.run.seed)}};
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
