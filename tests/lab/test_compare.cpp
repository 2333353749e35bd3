#include <cmath>
#include <string>
#include <vector>

#include "base/step_count.h"
#include "lab/compare/anchor_gap.h"
#include "lab/compare/compare.h"
#include "lab/compare/compare_report.h"
#include "lab/compare/contract_quantity.h"
#include "lab/runs/contract_horizon.h"
#include "tests/catch.h"
#include "tests/lab/compared_runs.h"

namespace assay::test_compare {
namespace {

using compared_runs::mentions;
using compared_runs::run_of;
using compared_runs::two_models;

}  // namespace

TEST_CASE(
    "two models of two seeds: losses, differences seed by seed, a ranking under their contract") {
  const std::vector<RunRecord> runs = two_models();
  const Comparison c = compare(runs, {});
  REQUIRE(c.models.size() == 2);
  REQUIRE(c.models[0].group.name == "dense");
  REQUIRE(c.models[0].final_loss->mean == Approx(3.31));
  REQUIRE(c.models[1].loss_against_first->seeds == std::vector<int64_t>{1, 2});
  REQUIRE(c.models[1].loss_against_first->summary.mean == Approx(-0.105));
  REQUIRE(!c.models[0].loss_against_first);
  REQUIRE(c.contract == "steps: 100 steps of 1,000 tokens");
  REQUIRE(c.rankings.size() == 1);
  REQUIRE(c.rankings[0].places[0].model == "moe");
  // 3.205 +- 12.7 * 0.005 against 3.31 +- 12.7 * 0.01; differences -0.10, -0.11: -0.105 +- 0.064.
  REQUIRE(c.rankings[0].places[0].note ==
          "interval overlaps the next one's, paired difference excludes 0");
  REQUIRE(c.notes.empty());
}

TEST_CASE("what a contract holds fixed is a quotient of planned tokens") {
  RunRecord run = hand_made({.name = "moe"});
  run.audit.total = 5000;
  run.audit.active = 2000;
  REQUIRE(*held_fixed(ContractKind::kActiveDN, run)[0].value == 100 * 1000 / 2000.0);
  REQUIRE(*held_fixed(ContractKind::kTotalDN, run)[0].value == 100 * 1000 / 5000.0);
  run.audit.parameters.shared_experts = 1000;
  run.config.contract.kind = ContractKind::kTotalDN;
  run.config.contract.shared_in_total = false;
  REQUIRE(*held_fixed(ContractKind::kTotalDN, run)[0].value == 100 * 1000 / 4000.0);
}

TEST_CASE("equal steps of other lengths, or one width with other steps, are not held fixed") {
  std::vector<RunRecord> runs = two_models();
  runs[2].config.run.batch_tokens = runs[3].config.run.batch_tokens = 2000;
  REQUIRE(compare(runs, {.contract = "steps"}).not_held.find("tokens per step: 1000") !=
          std::string::npos);
  runs = two_models();
  for (RunRecord& run : runs) run.audit.ffn_active_width = 64;
  REQUIRE(compare(runs, {.contract = "active-width"}).not_held.empty());
  runs[2].config.run.steps = 80;
  REQUIRE(compare(runs, {.contract = "active-width"}).not_held.find("planned steps: 80") !=
          std::string::npos);
}

TEST_CASE("one share of two horizons is one contract") {
  const auto text = [](int64_t steps, double coefficient, double fraction) {
    RunRecord run = run_of("a", 1, 64, 3.3);
    run.config.contract.kind = ContractKind::kActiveDN;
    run.config.contract.coefficient = coefficient;  // horizon: 5 of it
    run.config.contract.fraction = fraction;
    run.config.run.steps = steps;
    REQUIRE(fraction_of_steps(contract_horizon(run), fraction) == steps);
    return contract_text(run).substr(0, contract_text(run).find(' '));
  };
  REQUIRE(text(64, 42.2, 0.3) == "30%");
  REQUIRE(text(64, 42.4, 0.3) == "30%");
  REQUIRE(text(53, 42.2, 0.25) == "25%");
  // A branch records the quotient of whole steps.
  REQUIRE(text(64, 42.2, 64. / 211) == "30%");
  REQUIRE(text(64, 42.4, 64. / 212) == "30%");
  REQUIRE(text(27, 42.2, 0.125) == "12.5%");
  REQUIRE(text(27, 42.2, 27. / 211) == "12.5%");
  REQUIRE(text(200, 60, 2. / 3) == "66.67%");
  REQUIRE(text(8000, 2400, 2. / 3) == "66.67%");
}

TEST_CASE("curves are read at the step or at a near evaluation, never interpolated") {
  const std::vector<RunRecord> runs = {run_of("a", 1, 64, 3.3)};
  const struct {
    double fraction;
    int64_t step, measured_at;  // 0: none near
  } rows[] = {{0.02, 2, 0}, {0.1, 10, 0},   {0.2, 20, 20},  {0.21, 21, 20},
              {0.5, 50, 0}, {0.55, 55, 60}, {1.0, 100, 100}};
  for (const auto& row : rows) {
    const Comparison c = compare(runs, {.fractions = {row.fraction}});
    const CurvePoint& point = c.models[0].curve[0];
    INFO(row.fraction);
    REQUIRE(point.step == row.step);
    REQUIRE(point.loss.has_value() == (row.measured_at > 0));
    REQUIRE(point.measured_at == row.measured_at);
  }
}

TEST_CASE("a loss inside a run that is not finite is left out of the curve") {
  std::vector<RunRecord> runs = two_models();
  runs[0].val_loss_nats[1].value = NAN;
  const Comparison c = compare(runs, {.fractions = {0.4, 1}});
  REQUIRE(c.models[0].curve[0].loss->n == 1);
  REQUIRE(c.models[0].curve[0].loss->mean == Approx(3.92));
  REQUIRE(c.models[0].final_loss->n == 2);
  REQUIRE(mentions(c.notes, "dense at 40%: 1 of its 2 runs have a loss there"));
  AnchorLog anchor;
  anchor.val_loss_nats = {{.step = 40, .value = 3.5}};
  REQUIRE(anchor_gaps(anchor, c.models[0].group)[0].ours.n == 1);
  runs[0].val_loss_nats.back().value = NAN;
  REQUIRE_THROWS_AS(compare(runs, {}), UserError);
}

TEST_CASE("shares refer to the contract's horizon, not to the run's length") {
  RunRecord run = run_of("a", 1, 64, 3.3);
  run.config.contract.kind = ContractKind::kActiveDN;
  run.config.contract.coefficient = 100;  // a horizon of 500 steps
  const Comparison c = compare(std::vector<RunRecord>{run}, {});
  REQUIRE(contract_horizon(run) == 500);
  REQUIRE(c.models[0].contract == "20% of activeDN at 100 tokens per active parameter");
  REQUIRE(c.models[0].curve[3].step == 100);
  REQUIRE(c.models[0].curve[3].loss);
  REQUIRE(c.models[0].curve[4].step == 250);
  REQUIRE(!c.models[0].curve[4].loss);
}

TEST_CASE("under equal seconds each seed is read at its own steps") {
  std::vector<RunRecord> runs = {run_of("a-s1", 1, 64, 3.3), run_of("a-s2", 2, 64, 3.3)};
  for (RunRecord& run : runs) run.config.contract.kind = ContractKind::kSeconds;
  for (RunRecord& run : runs) run.config.contract.coefficient = 50;
  runs[0].config.contract.step_seconds = 0.5;  // 100 steps
  runs[1].config.contract.step_seconds = 1.0;  // 50 steps, validated at 20 and 40
  runs[1].config.run.steps = 50;
  const Comparison c = compare(runs, {.fractions = {0.4}});
  REQUIRE(c.models.size() == 1);
  REQUIRE(c.models[0].contract == "seconds: 50 s of training");
  REQUIRE(c.models[0].curve[0].loss->n == 2);
  REQUIRE(c.models[0].curve[0].loss->mean == Approx((3.9 + 4.1) / 2));
}

TEST_CASE("seconds of two machines are not held fixed") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) {
    run.device = "cpu", run.threads = "2";
    run.config.contract.kind = ContractKind::kSeconds;
    run.config.contract.coefficient = 50;
    run.config.contract.step_seconds = 0.5;
  }
  REQUIRE(compare(runs, {}).not_held.empty());
  runs[3].threads = "4";
  const std::string why = "dense-s1 ran on cpu, 2 threads, moe-s2 on cpu, 4 threads";
  const Comparison c = compare(runs, {});
  REQUIRE(c.not_held == "Not held fixed: seconds: " + why + ".");
  REQUIRE(mentions(c.notes, "the contract seconds is not kept: " + why));
  REQUIRE(compare(runs, {.contract = "seconds"}).not_held == c.not_held);
}

TEST_CASE("seeds that measured other steps do not keep a contract in seconds") {
  const auto under_seconds = [](int64_t steps_of_second) {
    std::vector<RunRecord> runs = two_models();  // of half a second per step
    for (RunRecord& run : runs) {
      const int64_t steps = run.config.run.seed == 2 ? steps_of_second : 100;
      run.config.contract.kind = ContractKind::kSeconds;
      run.config.contract.coefficient = 50;
      run.config.contract.step_seconds = 50 / double(steps);
      run.config.run.steps = run.steps_done = steps;
      run.tokens = steps * run.config.run.batch_tokens;
    }
    return runs;
  };
  REQUIRE(compare(under_seconds(90), {}).not_held.empty());
  const std::vector<RunRecord> runs = under_seconds(60);
  const Comparison c = compare(runs, {});
  const std::string values =
      "seconds of training: 30 in dense-s2 (60 steps), 50 in dense-s1 (100 steps)";
  REQUIRE(c.not_held == "Not held fixed: " + values + ".");
  const Comparison alone = compare(std::vector{runs[0], runs[1]}, {});
  REQUIRE(mentions(alone.notes, "the contract seconds is not kept: " + values));
  // The tables have all seeds: no step is that of a model.
  const std::string text = comparison_text(c);
  INFO(text);
  REQUIRE(text.find("60 to 100  60,000 to 100,000") != std::string::npos);
  REQUIRE((text.find(" @60") == std::string::npos && text.find(" @100") == std::string::npos));
  REQUIRE(c.models[0].curve.back().loss->n == 2);
  const auto model = comparison_json(c)["models"][0];
  REQUIRE((model["tokens"] == 80000.0 && model["horizon_steps"] == 80.0));
  REQUIRE((model["runs"][0]["tokens"] == 100000 && model["runs"][1]["tokens"] == 60000));
  REQUIRE((model["curve"][5]["step"].is_null() && model["curve"][5]["measured_at"].is_null()));
  const auto equal = comparison_json(compare(under_seconds(100), {}))["models"][0];
  REQUIRE((equal["tokens"] == 100000 && equal["tokens"].is_number_integer()));
  REQUIRE(equal["curve"][5]["measured_at"] == 100);
}

TEST_CASE("what the configurations name as held fixed is checked like what is asked for") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) {
    run.config.contract.kind = ContractKind::kSeconds;
    run.config.contract.coefficient = 50;
    run.config.contract.step_seconds = 0.5;
  }
  const auto slower = [](RunRecord& run, double factor) {
    for (StepValue& seconds : run.train_s) seconds.value *= factor;
  };
  // A measured time varies, so a model's is the mean of its seeds.
  std::vector<RunRecord> varied = runs;
  slower(varied[1], 1.04), slower(varied[2], 1.04);
  REQUIRE(compare(varied, {}).not_held.empty());
  slower(varied[3], 1.04);
  REQUIRE(compare(varied, {}).not_held.empty());
  slower(varied[3], 1.06), slower(varied[2], 1.06);
  REQUIRE(compare(varied, {}).not_held ==
          "Not held fixed: seconds of training: 51 in dense, 55.12 in moe.");
  slower(runs[3], 1.4);
  const std::string values = "seconds of training: 50 in dense, 60 in moe";
  const Comparison c = compare(runs, {});
  REQUIRE(c.not_held == "Not held fixed: " + values + ".");
  REQUIRE(mentions(c.notes, "the contract seconds is not kept: " + values));
  REQUIRE(compare(runs, {.contract = "seconds"}).not_held == c.not_held);
  REQUIRE(compare(std::vector{runs[2], runs[3]}, {}).not_held.empty());  // seeds of one model
  // A run that stopped at its target would have taken its own speed to the end.
  runs[3] = runs[2];
  runs[3].name = "moe-s2", runs[3].config.run.seed = 2, runs[3].end = "target_loss";
  runs[3].steps_done = 60;
  REQUIRE(compare(runs, {}).not_held.empty());
  // Whole steps of a short horizon.
  runs = two_models();
  for (RunRecord& run : runs) {
    run.config.contract.kind = ContractKind::kActiveDN;
    run.config.contract.coefficient = 1.8;
    run.config.run.steps = 9;  // floor of 1.8 * 5000 / 1000
  }
  REQUIRE(compare(runs, {}).not_held.empty());
  for (const size_t i : {2, 3}) {
    runs[i].audit.active = 4900;
    runs[i].config.run.steps = 8;  // of 8.82
  }
  REQUIRE(compare(runs, {}).not_held.empty());
  for (const size_t i : {2, 3}) runs[i].config.run.steps = 7;
  REQUIRE(compare(runs, {.contract = "activeDN"}).not_held ==
          "Not held fixed: tokens per active parameter: 1.42857 in moe-s1, 1.8 in dense-s1.");
}

TEST_CASE("one step of rounding is no difference of a contract") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.contract.kind = ContractKind::kActiveDN;
    runs[i].config.contract.coefficient = 144;
    runs[i].config.contract.fraction = 0.1;
    runs[i].audit.active = i < 2 ? 5000 : 5014;  // horizons of 720 and 722
    runs[i].config.run.steps = i < 2 ? 72 : 73;
  }
  const Comparison c = compare(runs, {});
  REQUIRE(c.contract == "10% of activeDN at 144 tokens per active parameter");
  REQUIRE(c.not_held.empty());
  for (const char* kind : {"totalDN", "flops"}) {  // of equal sizes: 73 / 72
    REQUIRE(compare(runs, {.contract = kind}).not_held.empty());
  }
  REQUIRE(!compare(runs, {.contract = "steps"}).not_held.empty());
  for (const size_t i : {2, 3}) runs[i].config.run.steps = 74;
  REQUIRE(compare(runs, {.contract = "activeDN"}).not_held ==
          "Not held fixed: tokens per active parameter: 14.4 in dense-s1, 14.7587 in moe-s1.");
}

TEST_CASE("time to a target, and who reached it") {
  std::vector<RunRecord> runs = two_models();
  runs[1].val_loss_nats.back().value = 3.45;
  const Comparison c = compare(runs, {.target_loss = 3.405});
  REQUIRE(c.models[0].target->reached == 1);
  REQUIRE(c.models[0].target->of == 2);
  REQUIRE(c.models[1].target->steps->mean == 90);  // the mean of 80 and 100
  REQUIRE(c.models[1].target->seconds->mean == 45);
  REQUIRE(c.models[1].target->tokens->mean == 90e3);
  REQUIRE(c.rankings.size() == 5);
  REQUIRE(c.rankings[1].by == "steps to 3.405 nats");
  REQUIRE(c.rankings[1].places.size() == 1);
  runs[0].device = "cuda: NVIDIA H200", runs[1].device = runs[2].device = runs[3].device = "cpu";
  const Comparison devices = compare(runs, {.target_loss = 3.405});
  REQUIRE(devices.rankings.size() == 4);
  REQUIRE(mentions(devices.notes, "no ranking by seconds: dense-s1 ran on cuda: NVIDIA H200, "));
  REQUIRE(c.rankings[1].not_reached == std::vector<std::string>{"dense"});
}

TEST_CASE("the target is the runs' own where they agree") {
  std::vector<RunRecord> runs = two_models();
  REQUIRE(!compare(runs, {}).target_loss);
  for (RunRecord& run : runs) run.config.run.target_loss = 3.25;
  REQUIRE(compare(runs, {}).target_loss == 3.25);
  runs[2].config.run.target_loss = runs[3].config.run.target_loss = 3.0;
  const Comparison c = compare(runs, {});
  REQUIRE(!c.target_loss);
  REQUIRE(mentions(c.notes, "run.target_loss is 3 in some runs and 3.25 in others"));
}

TEST_CASE("different contracts are reported, and there is no ranking until one is chosen") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i : {2, 3}) {
    runs[i].config.contract.kind = ContractKind::kTotalDN;
    runs[i].config.contract.coefficient = 20;
  }
  const Comparison c = compare(runs, {});
  REQUIRE(mentions(c.notes, "2 different contracts"));
  REQUIRE(c.rankings.empty());
  REQUIRE(c.no_ranking.find("--contract KIND") != std::string::npos);

  const Comparison said = compare(runs, {.contract = "totalDN"});
  REQUIRE(said.contract == "totalDN, set by --contract");
  REQUIRE(said.rankings.size() == 1);
  REQUIRE(!mentions(said.notes, "is not kept"));
  runs[3].audit.total = runs[2].audit.total = 10000;
  REQUIRE(
      mentions(compare(runs, {.contract = "totalDN"}).notes,
               "--contract totalDN is not kept: tokens per total parameter: 10 in moe-s1, 20 in "
               "dense-s1"));
  const Comparison broken = compare(runs, {.contract = "totalDN"});
  const std::string why =
      "Not held fixed: tokens per total parameter: 10 in moe-s1, 20 in dense-s1.";
  REQUIRE(comparison_sentence(broken).ends_with(why));
  REQUIRE(comparison_text(broken).find("\nranking by validation loss at the end. " + why + "\n") !=
          std::string::npos);
  REQUIRE(comparison_json(broken)["not_held"] == why);
  REQUIRE(comparison_json(said)["not_held"].is_null());
  runs[0].train_s.clear();
  const Comparison unknown = compare(runs, {.contract = "seconds"});
  REQUIRE(mentions(unknown.notes, "seconds of training of dense-s1 were not logged"));
  REQUIRE(comparison_sentence(unknown).ends_with(
      "Not known to be held fixed: seconds of training, not logged in dense-s1."));
}

TEST_CASE("seeds that share one order of the data are said to") {
  std::vector<RunRecord> runs = two_models();
  const std::string order = "saw the training data in one order (data.shuffle: false)";
  for (const size_t i : {0, 1}) runs[i].config.data.shuffle = false;
  REQUIRE(mentions(compare(runs, {}).notes, "all seeds of dense " + order));
  for (RunRecord& run : runs) run.config.data.shuffle = false;
  REQUIRE(mentions(compare(runs, {}).notes, "all seeds " + order));
  const std::vector<RunRecord> one_seed = {runs[0], runs[2]};
  REQUIRE(!mentions(compare(one_seed, {}).notes, order));
  // The seed decides the order within a step of a mixture, not that of a source's sequences.
  const std::string by_source = "saw each source's sequences in one order (data.shuffle: false)";
  for (RunRecord& run : runs) run.config.data.mixture = {0.5, 0.5};
  REQUIRE(mentions(compare(runs, {}).notes, "all seeds " + by_source));
  for (const size_t i : {0, 1}) runs[i].config.data.mixture.reset();
  REQUIRE(mentions(compare(runs, {}).notes,
                   "all seeds saw the training data (of a mixture, each source's sequences) in one "
                   "order (data.shuffle: false)"));
  for (const size_t i : {2, 3}) runs[i].config.data.shuffle = true;
  REQUIRE(mentions(compare(runs, {}).notes, "all seeds of dense " + order));
}

TEST_CASE("a collapsed router is marked beside its loss, and in the ranking") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i : {2, 3}) {
    runs[i].config.model.moe.emplace();
    runs[i].health.emplace();
    runs[i].health->worst_max_load_norm = 0.6;
  }
  REQUIRE(compare(runs, {}).models[1].health.text().starts_with("healthy: "));
  runs[3].health->worst_max_load_norm = 0.97;
  runs[3].health->worst_layer = 5;
  runs[3].health->saturated = {5};
  const Comparison c = compare(runs, {});
  REQUIRE(c.models[1].health.text() ==
          "collapsed in 1 of 2 runs: K*max_load 0.97 (layer 5), 0.0% of the experts dead");
  REQUIRE(mentions(c.notes, "moe is pathological"));
  REQUIRE(
      c.rankings[0].places[0].note.starts_with("pathological: routers collapsed in 1 of 2 runs; "));
  runs[2].health->saturated = {5};
  REQUIRE(compare(runs, {}).rankings[0].places[0].note.starts_with(
      "pathological: routers collapsed; "));
  REQUIRE(c.models[0].health.text() == "dense");
}

TEST_CASE("a restless router is marked beside its loss, with the numbers of its worst run") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i : {2, 3}) {
    runs[i].config.model.moe.emplace();
    runs[i].health.emplace();
    runs[i].health->worst_max_load_norm = i == 2 ? 0.3 : 0.1;
  }
  runs[3].health->restless = {4};
  runs[3].health->worst_steps_layer = 4;
  runs[3].health->worst_steps =
      StepLoads{.cv = 140, .cv_floor = 35, .max_load_norm = 0.2, .swing = 126};
  const Comparison c = compare(runs, {});
  REQUIRE(c.models[1].health.text().starts_with(
      "restless in 1 of 2 runs: K*max_load 0.10 (layer 0), 0.0% of the experts dead; at single "
      "steps K*max_load 0.20 and cv 140% of the mean load (layer 4)"));
  REQUIRE(mentions(c.notes, "the routers of moe are restless in 1 of 2 runs"));
  // The fields are those of the run with the largest load.
  const auto json = comparison_json(c);
  REQUIRE(json["models"][1]["health"]["worst_max_load_norm"] == 0.3);
}

TEST_CASE("an uneven router is marked as a restless one is, with the swing of its worst run") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i : {2, 3}) {
    runs[i].config.model.moe.emplace();
    runs[i].health.emplace();
    runs[i].health->worst_max_load_norm = i == 2 ? 0.3 : 0.1;
    runs[i].health->min_entropy_norm = 0.5;
    runs[i].health->worst_steps =
        StepLoads{.cv = 560, .cv_floor = 35, .max_load_norm = 0.4, .swing = i == 2 ? 537.0 : 20.0};
  }
  const Comparison c = compare(runs, {});
  const std::string text = c.models[1].health.text();
  INFO(text);
  REQUIRE(text.starts_with(
      "uneven in 2 of 2 runs: K*max_load 0.30 (layer 0), 0.0% of the experts dead; at single "
      "steps K*max_load 0.40 and cv 560% of the mean load (layer 0)"));
  REQUIRE(text.ends_with("loads swing by 537%"));
  REQUIRE(mentions(c.notes, "the routers of moe are uneven in 2 of 2 runs"));
  REQUIRE(!mentions(c.notes, "restless"));
  // One of each: the worse state is in the table, both are in the notes.
  runs[2].health->min_entropy_norm = 1;
  runs[2].health->restless = {0};
  const Comparison mixed = compare(runs, {});
  REQUIRE(mixed.models[1].health.text().starts_with("uneven in 1 of 2 runs: K*max_load 0.10 "));
  REQUIRE(mentions(mixed.notes, "the routers of moe are uneven in 1 of 2 runs"));
  REQUIRE(mentions(mixed.notes, "the routers of moe are restless in 1 of 2 runs"));
  const auto json = comparison_json(mixed);
  REQUIRE(json["models"][1]["health"]["uneven_runs"] == 1);
  REQUIRE(json["models"][1]["health"]["restless_runs"] == 1);
}

}  // namespace assay::test_compare
