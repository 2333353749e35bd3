#include "base/check.h"
#include "lab/matrix/report.h"
#include "lab/runs/run_measures.h"
#include "tests/catch.h"
#include "tests/lab/run_records.h"

namespace assay::test_matrix_export {

TEST_CASE("runs.csv has a run that collapse_stop ended, without the measures of a whole run") {
  Matrix matrix;
  for (const char* name : {"finished", "stopped", "waiting"}) {
    Cell& cell = matrix.cells.emplace_back();
    cell.name = cell.run = name;
    cell.seed = 1;
    cell.contract = "steps";
    cell.model = "moe";
    cell.precision = "bf16";
  }
  const auto run_of = [](const char* end, double load) {
    RunRecord run = hand_made({.name = "run", .seed = 1, .val_loss_nats = {{100, 3.5, 10}}});
    run.end = end;
    LayerHealth layer;
    layer.layer = 1;
    layer.max_load_norm = load;
    layer.entropy_norm = 0.5;
    layer.cv_norm = 0.125;
    layer.active_norm = 0.75;
    layer.steps = StepLoads{.swing = 125};
    MoeConfig& moe = run.config.model.moe.emplace();
    moe.experts = 64;
    moe.top_k = 8;
    run.health = health_of(std::vector{layer}, 64, 8);
    run.health->stopped_by_guard = run.end == "collapse_stop";
    return run;
  };
  MatrixSummary summary{.matrix = &matrix,
                        .records = {{"finished", run_of("steps", 0.25)}},
                        .stopped = {{"stopped", run_of("collapse_stop", 0.875)}},
                        .different_data = "",
                        .seal = std::nullopt,
                        .tables = {}};
  const std::string text = runs_csv(summary);
  INFO(text);
  const RunRecord& whole = summary.records.at("finished");
  const std::string steps = std::to_string(whole.steps_done) + "," + std::to_string(whole.tokens);
  const std::string share = strprintf("%.17g", *find_run_measure("effective_share")->of(whole));
  for (const std::string& part :
       {"finished,finished,steps,moe,bf16,1,steps," + steps + ",3.5,,,50,3000000,0.25,," + share +
            ",1.25,64,8,0.125,0.25,0.5,0.25,0,0\n",
        "stopped,stopped,steps,moe,bf16,1,collapse_stop," + steps + ",,,,50,3000000,0.875,," +
            share + ",1.25,64,8,0.125,0.875,0.5,0.25,0,1\n",
        "waiting,waiting,steps,moe,bf16,1" + std::string(20, ',') + "\n"}) {
    INFO(part);
    REQUIRE(text.find(part) != std::string::npos);
  }
}

TEST_CASE("the shares of dead experts over fewer steps than the window are in no CSV") {
  Matrix matrix;
  Cell& cell = matrix.cells.emplace_back();
  cell.name = cell.run = "moe";
  cell.configured = true;
  const auto run_of = [](int64_t seed, int64_t logged, double active) {
    RunRecord run = hand_made({.name = "moe", .seed = seed, .val_loss_nats = {{100, 3.5, 10}}});
    LayerHealth layer;
    layer.max_load_norm = 0.25;
    layer.active_norm = active;
    run.config.model.moe.emplace();
    run.health = health_of(std::vector{layer}, 64, 8);
    run.health->logged = logged;
    run.health->window = 100;
    return run;
  };
  const RunRecord early = run_of(1, 4, 0.5), judged = run_of(2, 100, 0.75);
  const auto texts = [&](const std::vector<const RunRecord*>& runs) {
    SummaryRow row;
    row.cell = &cell;
    row.runs.runs = runs;
    MatrixSummary summary{.matrix = &matrix,
                          .records = {{"moe", *runs.front()}},
                          .stopped = {},
                          .different_data = "",
                          .seal = std::nullopt,
                          .tables = {}};
    summary.tables.emplace_back().rows.push_back(row);
    return std::vector{runs_csv(summary), summary_csv(summary)};
  };
  for (const std::string& text : texts({&early})) {
    INFO(text);
    REQUIRE(text.ends_with(",0.25,1,,0,\n"));  // max_load, entropy_min, dead, saturated_layers
  }
  for (const std::string& text : texts({&judged})) {
    INFO(text);
    REQUIRE(text.ends_with(",0.25,1,0.25,0,0\n"));
  }
  REQUIRE(texts({&early, &judged})[1].ends_with(",0.25,1,0.25,0,0\n"));  // of one of the two
}

}  // namespace assay::test_matrix_export
