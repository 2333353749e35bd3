#include <cmath>

#include "lab/runs/contract_horizon.h"
#include "lab/runs/run_summary.h"
#include "tests/catch.h"

namespace assay::test_run_summary {
namespace {

// A run with 1024 tokens per step, evaluations and healthy routers.
RunRecord record() {
  RunRecord run;
  run.config.run = {.steps = 100, .batch_tokens = 1024};
  run.config.run.target_loss = 3.0;
  run.audit.flops_per_token = 1000;
  run.steps_done = 80;
  run.end = "target_loss";
  run.val_loss_nats = {{40, 3.5, 4096}, {60, 2.9, 4096}, {80, 2.8, 4096}};
  run.train_s = {{40, 4.0}, {60, 6.5}, {80, 9.0}};
  run.health = RouterHealth{
      .worst_layer = 3, .worst_max_load_norm = 0.7, .dead_share = 0.1, .saturated = {}};
  return run;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("the target is reached at the first evaluation at or below it") {
  const auto reached = target_reached(record());
  REQUIRE(reached);
  REQUIRE(reached->steps == 60);
  REQUIRE(reached->loss_nats == 2.9);
  REQUIRE(reached->tokens == 61440);
  REQUIRE(reached->seconds == 6.5);
  REQUIRE(reached->flops == 61440000.0);
  RunRecord run = record();
  run.config.run.target_loss = 2.9;
  REQUIRE(target_reached(run)->steps == 60);
  run.config.run.target_loss = 2.0;
  REQUIRE(!target_reached(run));
  run.config.run.target_loss = 0;
  REQUIRE(!target_reached(run));
}

TEST_CASE("a run tells where its steps took other seconds than its contract went by") {
  RunRecord run = record();
  run.train_s = {{40, 4.0}, {80, 8.0}};
  REQUIRE(missed_seconds_text(run).empty());
  ContractConfig& contract = run.config.contract;
  contract.kind = ContractKind::kSeconds;
  contract.coefficient = 25;
  contract.step_seconds = 0.25;
  const std::string took =
      "the training took 8 s, not the 25 s of its contract: a step took 0.1 s, and the 100 steps "
      "were derived from 0.25 s (contract.step_seconds, ";
  REQUIRE(missed_seconds_text(run) == took + "as given)");
  contract.derived_from = "step_seconds measured when the run began";
  REQUIRE(missed_seconds_text(run) ==
          took + "measured when the run began; where it is given, all seeds take equal steps)");
  for (const double near : {0.085, 0.12}) {
    contract.step_seconds = near;
    REQUIRE(missed_seconds_text(run).empty());
  }
  contract.step_seconds = 0.08;
  REQUIRE(!missed_seconds_text(run).empty());
  // An hour that took two: no digits are lost, and none is a power of ten.
  run.train_s = {{80, 5849.4}};
  contract.coefficient = 7200;
  contract.fraction = 0.5;
  contract.step_seconds = 36;
  REQUIRE(missed_seconds_text(run).starts_with(
      "the training took 5849 s, not the 3600 s of its contract: a step took 73.1 s, and the 100 "
      "steps were derived from 36 s ("));
  run.train_s.clear();
  REQUIRE(missed_seconds_text(run).empty());
}

TEST_CASE("a win by collapsed routers is marked") {
  RunRecord run = record();
  REQUIRE(!is_pathological_win(run));
  REQUIRE(joined(summary_lines(run)).find("pathological") == std::string::npos);
  run.health->saturated = {3, 5};
  REQUIRE(is_pathological_win(run));
  REQUIRE(joined(summary_lines(run)).find("pathological win") != std::string::npos);
  REQUIRE(joined(summary_lines(run)).find("routers: collapsed: K*max_load 0.70 (layer 3)") !=
          std::string::npos);
  REQUIRE(summary_json(run)["pathological_win"] == true);
  run.end = "steps";  // then it is not a win
  REQUIRE(!is_pathological_win(run));
  run.end = "target_loss";
  run.health.reset();
  REQUIRE(!is_pathological_win(run));
}

TEST_CASE("a summary has the health of its routers, and a capability where one was asked for") {
  const std::string text = joined(summary_lines(record()));
  for (const char* part :
       {"routers: uneven: K*max_load 0.70 (layer 3), 10.0% of the experts dead",
        "target 3 reached: 2.9000 nats at step 60, 61440 tokens, 6.5 s of training, 6.144e+07"}) {
    INFO(part << "\n" << text);
    REQUIRE(text.find(part) != std::string::npos);
  }
  const auto json = summary_json(record());
  REQUIRE(json["loss_nats"] == 2.8);
  REQUIRE(json["loss_step"] == 80);
  REQUIRE(json["capability"].is_null());
  REQUIRE(json["health"]["worst_max_load_norm"] == 0.7);
  REQUIRE(json["health"]["state"] == "uneven");
  RunRecord restless = record();
  *restless.health = {.worst_layer = 3,
                      .worst_max_load_norm = 0.1,
                      .saturated = {},
                      .restless = {2},
                      .worst_steps = StepLoads{.cv = 140, .max_load_norm = 0.2, .swing = 126},
                      .worst_steps_layer = 2};
  REQUIRE(joined(summary_lines(restless))
              .find("routers: restless: K*max_load 0.10 (layer 3), 0.0% of the experts dead; at "
                    "single steps K*max_load 0.20 and cv 140%") != std::string::npos);
  REQUIRE(summary_json(restless)["health"]["state"] == "restless");
  REQUIRE(summary_json(restless)["health"]["restless_layers"] == std::vector<int64_t>{2});
  REQUIRE(!is_pathological_win(restless));
  REQUIRE(json["target"]["step"] == 60);
  REQUIRE(json["train_s"] == 9.0);
  REQUIRE(json["train_s_step"] == 80);
  RunRecord between = record();  // stopped between two logged steps
  between.steps_done = 95;
  REQUIRE(summary_json(between)["train_s_step"] == 80);
  REQUIRE(summary_json(between)["loss_step"] == 80);
  between.val_loss_nats.push_back({90, std::nan(""), 4096});  // measured, without a value
  REQUIRE(summary_json(between)["loss_nats"].is_null());
  REQUIRE(summary_json(between)["loss_step"] == 90);

  RunRecord odd = record();
  odd.path = "it's run 1";
  REQUIRE(joined(summary_lines(odd)).find("(assay router 'it'\\''s run 1')") != std::string::npos);

  RunRecord bare;
  bare.config.run.target_loss = 1;
  REQUIRE(joined(summary_lines(bare)) == "target 1 not reached\n");
  bare.config.eval.core.emplace();
  REQUIRE(joined(summary_lines(bare)).starts_with("capability: not evaluated\n"));
  REQUIRE(summary_json(bare)["target"]["reached"] == false);
  REQUIRE(summary_json(bare)["train_s"].is_null());
  REQUIRE(summary_json(bare)["loss_step"].is_null());
}

}  // namespace assay::test_run_summary
