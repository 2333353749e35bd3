#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/matrix/claims.h"
#include "lab/matrix/gap.h"
#include "lab/matrix/report.h"
#include "lab/runs/run_measures.h"
#include "tests/catch.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_matrix_report {
namespace {

using planted_measures::claim;
using planted_measures::Grid;
using planted_measures::planted_table;
using planted_measures::run_of;
using planted_measures::Table;

}  // namespace

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

TEST_CASE("one loss curve over runs of two lengths has no gap") {
  // Both models have the loss 3 + 0.5 share^-0.3, validated every 30 steps: the nearest one to
  // a share is up to a fifth of it away, which is 0.07 nats.
  const auto loss = [](int64_t step, int64_t steps) {
    return 3 + 0.5 * std::pow(double(step) / double(steps), -0.3);
  };
  Table t({"dense", "moe"},
          {{"dense", 1, 3, 0}, {"dense", 2, 3, 0}, {"moe", 1, 3, 0}, {"moe", 2, 3, 0}});
  for (RunRecord& run : t.runs) {
    const int64_t steps = run.name.starts_with("dense") ? 720 : 886;
    run.config.run.steps = steps;
    run.val_loss_nats = {{0, 11, 10}};
    for (int64_t step = 30; step <= steps; step += 30)
      run.val_loss_nats.push_back({step, loss(step, steps), 10});
    if (steps % 30 != 0) run.val_loss_nats.push_back({steps, loss(steps, steps), 10});
  }
  const std::vector<GapCurve> curves = gap_curves(t.tables[0]);
  REQUIRE(curves.size() == 1);
  // Of dense from step 120 to 720: before, the neighbours of moe are more than a quarter apart.
  REQUIRE(curves[0].points.size() == 21);
  for (const GapPoint& point : curves[0].points) {
    INFO(point.share);
    REQUIRE(std::abs(point.gap.mean) < 0.001);
  }
  // Exact: the end, and 390 of 720 steps, which are nearly 480 of 886.
  REQUIRE(std::count_if(curves[0].points.begin(), curves[0].points.end(),
                        [](const GapPoint& point) { return point.interpolated; }) == 19);
  REQUIRE((curves[0].points.back().gap.mean == 0 && !curves[0].points.back().interpolated));
  const std::string text = gap_markdown(t.tables[0]);
  for (const char* part : {"+0.0000~ |\n", "+0.0000 |\n", "(~: the loss read between two"}) {
    INFO(part << "\n" << text);
    REQUIRE(text.find(part) != std::string::npos);
  }
  // A share between validations that are far apart is not read, nor one before the first.
  for (RunRecord& run : t.runs) {
    if (!run.name.starts_with("moe")) continue;
    run.val_loss_nats = {{300, 3.7, 10}, {601, 3.6, 10}, {750, 3.5, 10}, {886, 3.4, 10}};
  }
  const std::vector<GapCurve> sparse = gap_curves(t.tables[0]);
  REQUIRE(!sparse[0].points.empty());
  for (const GapPoint& point : sparse[0].points) {
    INFO(point.share);
    REQUIRE(point.share * 886 > 601);
  }
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

TEST_CASE("a matrix says of equal differences that they have no spread, and of landings left out") {
  Table t = planted_table();
  ContractTable& table = t.tables[0];
  SummaryRow &full = table.rows[0], &even = table.rows[1];
  full.loss = summarise(SeedValues{{1, 4.0}, {2, 4.2}});
  even.loss = summarise(SeedValues{{1, 4.5}, {2, 4.7}});
  even.difference = paired_difference({{1, 4.5}, {2, 4.75}}, {{1, 4.0}, {2, 4.25}});
  table.ranking = {&full, &even};
  table.relation = {ContractTable::Relation::kNoSpread};
  table.target_nats = 4.1;
  table.left_out_steps = {18, 45};
  const Matrix matrix;
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  const std::string text = summary_markdown(summary);
  INFO(text);
  for (const char* part :
       {"full 4.1000 ? even 4.6000", "- (equal in all seeds: no spread to judge by)",
        "`?`: the difference over shared seeds is equal in all seeds: no spread to judge by.",
        "Landings at steps 18, 45 are not read as crossings: not every model was validated"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("the ranking says in how many runs the routers collapsed, unless in all") {
  Table t = planted_table();
  ContractTable& table = t.tables[0];
  SummaryRow &full = table.rows[0], &even = table.rows[1];
  full.loss = summarise(SeedValues{{1, 4.0}, {2, 4.2}});
  even.loss = summarise(SeedValues{{1, 4.5}, {2, 4.7}});
  even.difference = paired_difference({{1, 4.5}, {2, 4.75}}, {{1, 4.0}, {2, 4.25}});
  table.ranking = {&full, &even};
  table.relation = {ContractTable::Relation::kNoSpread};
  const Matrix matrix;
  const auto text_with = [&](int64_t collapsed) {
    full.collapsed = collapsed;
    MatrixSummary summary;
    summary.matrix = &matrix;
    summary.tables = t.tables;
    return summary_markdown(summary);
  };
  const auto runs = int64_t(runs_with_routers(full).runs.size());
  REQUIRE(runs == 3);
  for (const auto& [collapsed, said] :
       {std::pair<int64_t, std::string>{0, "full 4.1000 ? even 4.6000"},
        {1, "full 4.1000 (routers collapsed in 1 of 3 runs) ? even"},
        {3, "full 4.1000 (routers collapsed) ? even"}}) {
    const std::string text = text_with(collapsed);
    INFO(text);
    REQUIRE(text.find(said) != std::string::npos);
  }
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
  REQUIRE(!has("restless"));
  t.tables[0].rows[0].restless = 2;
  REQUIRE(has("0.90 restless (2 of 3)"));
  t.tables[0].rows[0].uneven = 1;
  REQUIRE(has("0.90 uneven (1 of 3) restless (2 of 3)"));
  REQUIRE(has(" worst max_load*K |\n"));
  REQUIRE(has(" | mean max_load*K | "));
  REQUIRE(has("0.480 ± 0.340"));  // of 0.30, 0.32, 0.31 and 0.99
  REQUIRE(has(" -, -, 3, 3 "));
  REQUIRE(has("experts over the last 8 logged steps"));
  t.cells[1].config.telemetry.window = 20;
  REQUIRE(has("experts over the last 8 to 20 logged steps"));
}

TEST_CASE("uneven runs are counted, and effective_share and swing stand beside the loads") {
  Table t = planted_table();
  for (RunRecord& run : t.runs) {
    run.config.model.moe.emplace().experts = 64;
    run.health->saturated.clear();
    run.health->dead_share = 0;
    run.health->min_entropy_norm = 0.95;
    run.health->worst_max_load_norm = 0.2;
  }
  // By the load (0.5625 is half of the way from 8/64 to 1), then by the entropy.
  t.runs[0].health->worst_max_load_norm = 0.57;
  t.runs[1].health->min_entropy_norm = 0.5;
  for (SummaryRow& row : t.tables[0].rows) fill_health(row);
  const SummaryRow& full = t.tables[0].rows[0];
  REQUIRE((full.uneven == 2 && full.collapsed == 0 && full.restless == 1));
  REQUIRE(t.tables[0].rows[1].uneven == 0);
  for (size_t i : {0, 1, 2}) t.runs[i].health->min_entropy_norm = 0.5;  // sqrt(64) of 64 experts
  MoeConfig& moe = t.cells[0].config.model.moe.emplace();
  moe.experts = 128;
  moe.top_k = 4;
  const Matrix matrix;
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  const std::string text = summary_markdown(summary);
  INFO(text);
  for (const char* part : {" | effective_share | swing % | ", " 0.125 ± 0.000 | 125 ± 0 |",
                           "0.57 uneven (2 of 3) restless (1 of 3) |"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
  REQUIRE(nlohmann::json::parse(summary_json(summary))["contracts"][0]["rows"][0]["uneven_runs"] ==
          2);
  const std::string csv = summary_csv(summary);
  INFO(csv);
  REQUIRE(csv.find(",restless_runs,uneven_runs,effective_share,swing,experts,top_k,cv,max_load,"
                   "entropy_min,dead,saturated_layers,collapsed\n") != std::string::npos);
  REQUIRE(csv.find(",1,2,0.12") != std::string::npos);
  REQUIRE(csv.find(",1.25,128,4,0.9") != std::string::npos);
  REQUIRE(csv.find(",0.5,0,0.33333333333333331,0\n") != std::string::npos);
  REQUIRE(csv.ends_with(",0" + std::string(10, ',') +
                        "\n"));  // the model without a run, a dense one here
}

TEST_CASE("models without a run are named in one line, and what has begun has its own") {
  Table t = planted_table();
  SummaryRow& none = t.tables[0].rows[3];
  none.missing = {"none-seed1: waiting", "none-seed2: waiting"};
  none.waiting = 2;
  const Matrix matrix;
  const auto text = [&] {
    MatrixSummary summary;
    summary.matrix = &matrix;
    summary.tables = t.tables;
    const auto json = nlohmann::json::parse(summary_json(summary));
    REQUIRE(json["contracts"][0]["rows"].size() == 4);
    REQUIRE(json["contracts"][0]["rows"][3]["missing"].size() == none.missing.size());
    return summary_markdown(summary);
  };
  const std::string one = text();
  INFO(one);
  REQUIRE(one.find("\n1 model has no finished run: none.\n") != std::string::npos);
  REQUIRE(one.find("| none") == std::string::npos);
  REQUIRE(one.find("waiting") == std::string::npos);
  none.missing.push_back("none-seed3: partial, step 4 of 100");
  REQUIRE(text().find("\n- none-seed3: partial, step 4 of 100\n") != std::string::npos);
  // A model whose runs a guard stopped has a row.
  none.stopped = {"non_finite"};
  REQUIRE(text().find("no finished run") == std::string::npos);
  REQUIRE(text().find("| none") != std::string::npos);
  none.stopped.clear();
  for (SummaryRow& row : t.tables[0].rows) row.runs.runs.clear();
  const std::string all = text();
  REQUIRE(all.find("\n4 models have no finished run: full, even, one, none.\n") !=
          std::string::npos);
  REQUIRE(all.find("val loss") == std::string::npos);
}

TEST_CASE("--only leaves rows and claims out of what is printed, and changes no other number") {
  Table t = planted_table();
  std::vector<SummaryRow>& rows = t.tables[0].rows;
  for (SummaryRow& row : rows) {
    if (!row.runs.runs.empty()) row.worst_load = 0.9;
  }
  rows[0].loss = summarise(SeedValues{{1, 4.0}, {2, 4.2}});
  rows[1].loss = summarise(SeedValues{{1, 4.5}, {2, 4.7}});
  rows[1].difference = paired_difference({{1, 4.5}, {2, 4.7}}, {{1, 4.0}, {2, 4.1}});
  using enum MatrixClaim::Relation;
  Matrix matrix;
  matrix.file.claims = {claim("max_load", "full", kBelow, "", 0.5),
                        claim("max_load", "even", kBelow, "full", 0),
                        claim("max_load", "full", kAbove, "even", 0)};
  matrix.file.claims[0].name = "other";
  matrix.file.claims[1].name = "own";
  matrix.file.claims[2].name = "against";
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  const double p = shown_claims(summary).at(1).p_holm.value();
  REQUIRE(!nlohmann::json::parse(summary_json(summary)).contains("only"));
  show_only(summary, {&t.cells[1]}, {"even"});
  const std::vector<ClaimResult> claims = shown_claims(summary);
  REQUIRE((claims.size() == 2 && claims[0].claim->name == "own" && claims[0].p_holm == p));
  REQUIRE(claims[1].claim->name == "against");
  const std::string text = summary_markdown(summary);
  INFO(text);
  for (const char* part : {"\n1 of 4 rows are shown, and the claims on their models (--only);",
                           "| even", "minus full", "+0.5500", "| own", "| against"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
  for (const char* part : {"| full", "| one", "none", "| other"}) {
    INFO(part);
    REQUIRE(text.find(part) == std::string::npos);
  }
  const auto json = nlohmann::json::parse(summary_json(summary));
  REQUIRE((json["only"].size() == 1 && json["only"][0] == "even"));
  REQUIRE(json["contracts"][0]["rows"].size() == 1);
  REQUIRE(json["claims"].size() == 2);
}

TEST_CASE("a table names what its rows differ in, but not the precisions that it compares") {
  Table t = planted_table();
  std::vector<SummaryRow>& rows = t.tables[0].rows;
  const auto texts = [&] {
    std::vector<std::string> all;
    for (const Confound& c : confounds_of(rows)) all.push_back(c.text);
    return all;
  };
  rows[2].runs.runs.clear();  // the row of one seed
  REQUIRE(texts().empty());
  for (RunRecord& run : t.runs) {
    if (run.name.starts_with("even")) run.config.precision.recipe = "fp32";
    if (run.name.starts_with("full")) run.config.precision.recipe = "bf16";
  }
  const std::string differs = "precision.recipe differs: full bf16, even fp32";
  REQUIRE(texts() == std::vector<std::string>{differs});
  const Matrix matrix;
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  summary.tables[0].confounds = confounds_of(rows);
  REQUIRE(summary_markdown(summary).find("\n- confound: " + differs + "\n") != std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(summary));
  REQUIRE(json["contracts"][0]["confounds"][0]["name"] == "precision");
  REQUIRE(json["shared_order"].is_null());
  summary.shared_order = "all seeds saw one order";
  REQUIRE(summary_markdown(summary).find("\nNote: all seeds saw one order.\n") !=
          std::string::npos);
  REQUIRE(nlohmann::json::parse(summary_json(summary))["shared_order"] == summary.shared_order);
  t.cells[1].precision = "fp32";
  REQUIRE(texts().empty());
}

}  // namespace assay::test_matrix_report
