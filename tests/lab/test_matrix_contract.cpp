// What the contract of a matrix's table holds fixed, and what a plan says of steps it measures.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lab/matrix/claims.h"
#include "lab/matrix/plan.h"
#include "lab/matrix/report.h"
#include "lab/matrix/table_contract.h"
#include "lab/matrix/verdict_counts.h"
#include "tests/catch.h"
#include "tests/lab/matrix_family.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_matrix_contract {
namespace {

using matrix_family::Family;
using planted_measures::claim;
using planted_measures::planted_table;
using planted_measures::Table;

std::string held_in(const Table& t) {
  std::vector<const SummaryRow*> rows;
  for (const SummaryRow& row : t.tables[0].rows) rows.push_back(&row);
  return why_not_held(t.tables[0], rows);
}

// Both names as they are in planted_table().
void set_batch(Table& t, const std::string& model, int64_t tokens) {
  for (RunRecord& run : t.runs) {
    if (run.name.starts_with(model)) run.config.run.batch_tokens = tokens;
  }
}

}  // namespace

TEST_CASE("equal steps of two batch sizes are no contract, in the table and in its claims") {
  using enum MatrixClaim::Relation;
  Table t = planted_table();
  ContractTable& table = t.tables[0];
  table.contract.kind = ContractKind::kSteps;
  REQUIRE(held_in(t).empty());
  set_batch(t, "even", 1009);  // within a hundredth
  REQUIRE(held_in(t).empty());
  set_batch(t, "even", 2000);
  const std::string why =
      "Not held fixed: tokens per step: 1000 in full-seed1, 2000 in even-seed1.";
  REQUIRE(held_in(t) == why);
  table.not_held = held_in(t);

  Matrix matrix;
  matrix.file.claims = {claim("max_load", "even", kBelow, "full", 0),
                        claim("max_load", "even", kBelow, "", 1)};
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  const std::string text = summary_markdown(summary);
  INFO(text);
  REQUIRE(text.find("\n" + why + "\n") != std::string::npos);
  REQUIRE(text.find("contract not kept: the two models' runs differ") != std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(summary));
  REQUIRE(json["contracts"][0]["not_held"] == why);
  REQUIRE(json["claims"][0]["not_held"] == why);
  REQUIRE(json["claims"][0]["verdict"] == "holds");
  REQUIRE(json["claims"][1]["not_held"].is_null());  // of one model
  const std::vector<ClaimResult> results = evaluate_claims(matrix.file.claims, summary.tables);
  REQUIRE(marked_verdict(results[0]) == "holds, contract not kept");
  REQUIRE(marked_verdict(results[1]) == "holds");
  // Only the rows that a claim is about count.
  set_batch(t, "even", 1000);
  set_batch(t, "one", 500);
  REQUIRE(!held_in(t).empty());
  REQUIRE(evaluate_claims(matrix.file.claims, t.tables)[0].not_held.empty());
}

TEST_CASE("a table without a contract is under that of its models, where they bring one") {
  Table t = planted_table();
  REQUIRE(held_in(t).empty());
  for (RunRecord& run : t.runs) run.config.contract.kind = ContractKind::kActiveDN;
  REQUIRE(held_in(t).empty());
  for (RunRecord& run : t.runs) {
    if (run.name.starts_with("even")) run.config.run.steps = 150;
  }
  REQUIRE(held_in(t) ==
          "Not held fixed: tokens per active parameter: 20 in full-seed1, 30 in even-seed1.");
  t.runs[0].config.contract.kind = ContractKind::kTotalDN;
  REQUIRE(held_in(t) == "Not held fixed: the models are under different contracts of their own.");
  // Under steps of their own the table says so itself.
  for (RunRecord& run : t.runs) run.config.contract.kind = ContractKind::kSteps;
  REQUIRE(!held_in(t).empty());
  t.tables[0].own_steps = true;
  REQUIRE(held_in(t).empty());
  t.tables[0].contract.kind = ContractKind::kSteps;
  REQUIRE(held_in(t).empty());
}

TEST_CASE("a third model's steps do not hide two batch sizes") {
  Table t = planted_table();
  t.tables[0].contract.kind = ContractKind::kSteps;
  set_batch(t, "even", 2000);
  for (RunRecord& run : t.runs) {
    if (run.name.starts_with("one")) run.config.run.steps = 200;
  }
  t.tables[0].own_steps = true;
  const std::string why =
      "Not held fixed: tokens per step: 1000 in full-seed1, 2000 in even-seed1.";
  REQUIRE(held_in(t) == why);
  const std::vector<MatrixClaim> claims = {
      claim("max_load", "even", MatrixClaim::Relation::kBelow, "full", 0),
      claim("max_load", "one", MatrixClaim::Relation::kBelow, "full", 0)};
  const std::vector<ClaimResult> results = evaluate_claims(claims, t.tables);
  REQUIRE(results[0].not_held == why);
  REQUIRE(results[1].not_held.empty());
}

TEST_CASE("seconds are compared between the models of a claim, not between seeds") {
  Table t = planted_table();
  t.tables[0].contract.kind = ContractKind::kSeconds;
  const auto slower = [&](const std::string& name, double factor) {
    for (RunRecord& run : t.runs) {
      for (StepValue& seconds : run.train_s) seconds.value *= run.name == name ? factor : 1;
    }
  };
  slower("full-seed1", 1.1), slower("even-seed3", 1.1);
  const std::vector<MatrixClaim> claims = {
      claim("max_load", "even", MatrixClaim::Relation::kBelow, "full", 0)};
  REQUIRE(held_in(t).empty());
  REQUIRE(evaluate_claims(claims, t.tables)[0].not_held.empty());
  slower("even-seed1", 1.6);
  const std::string why = "Not held fixed: seconds of training: 50 in one, 61.6667 in even.";
  REQUIRE(held_in(t) == why);
  REQUIRE(evaluate_claims(claims, t.tables)[0].not_held ==
          "Not held fixed: seconds of training: 51.6667 in full, 61.6667 in even.");
}

TEST_CASE("seeds that measured other steps show in the table, as their range and as not held") {
  Table t = planted_table();
  t.tables[0].contract.kind = ContractKind::kSeconds;
  const auto summary = [&] {
    Matrix matrix;
    MatrixSummary summary;
    summary.matrix = &matrix;
    summary.tables = t.tables;
    return std::pair{summary_markdown(summary), summary_json(summary)};
  };
  const auto text = [&] { return summary().first; };
  const auto planned = [&] {
    std::set<int64_t> steps;  // of even's runs, by which the page shows a range too
    const auto json = nlohmann::json::parse(summary().second);
    for (const auto& run : json["contracts"][0]["rows"][1]["runs"])
      steps.insert(run["planned_steps"].get<int64_t>());
    return steps;
  };
  const std::vector<const SummaryRow*> even = {&t.tables[0].rows[1]};
  REQUIRE(text().find("40 to 80") == std::string::npos);
  REQUIRE(planned().size() == 1);
  REQUIRE(why_not_held(t.tables[0], even).empty());
  int64_t steps = 40;
  for (RunRecord& run : t.runs) {
    run.config.contract.kind = ContractKind::kSeconds;
    if (!run.name.starts_with("even")) continue;
    run.config.run.steps = run.steps_done = steps;
    steps += 20;
  }
  INFO(text());
  REQUIRE(text().find(" 40 to 80 ") != std::string::npos);
  REQUIRE(planned() == std::set<int64_t>{40, 60, 80});
  const std::string why =
      "Not held fixed: seconds of training: 20 in even-seed1 (40 steps), 40 in even-seed3 (80 "
      "steps).";
  REQUIRE(why_not_held(t.tables[0], even) == why);
  const MatrixClaim alone = claim("max_load", "even", MatrixClaim::Relation::kBelow, "", 1);
  const std::vector<MatrixClaim> claims = {alone};
  REQUIRE(evaluate_claims(claims, t.tables)[0].not_held.empty());  // it compares no models
}

TEST_CASE("a plan leaves out what measured steps will cost, and counts their seconds") {
  const Family family;
  const Matrix m = family.matrix(
      "models: {dense: dense.yaml, moe: moe.yaml}\nprecisions: [fp32]\n"
      "contracts: [{kind: steps}, {kind: seconds, coefficient: 7200, fraction: 0.5}]\n");
  std::vector<const Cell*> all;
  for (const Cell& cell : m.cells) all.push_back(&cell);
  MatrixPlan plan = plan_matrix(m, family.runs(), all);
  double flops = 0;
  for (const Cell& cell : m.cells) flops += cell.flops();
  plan.flop_per_s = 1e15;  // the others take no time
  const std::string text = plan_text(plan);
  INFO(text);
  REQUIRE(text.find("measured          -           -") != std::string::npos);
  REQUIRE(text.find(strprintf("%.3e of them left, without 2 runs whose steps are measured; ",
                              flops)) != std::string::npos);
  REQUIRE(text.find("2.00 hours, 2.00 of them left") != std::string::npos);
  plan.runs[2].status.state = CellState::kDone;
  REQUIRE(plan_text(plan).find("2.00 hours, 1.00 of them left") != std::string::npos);
  const auto runs = nlohmann::json::parse(plan_json(plan))["runs"];
  REQUIRE((runs[2]["hours"] == 1 && runs[2]["flops"].is_null()));
}

}  // namespace assay::test_matrix_contract
