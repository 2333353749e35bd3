#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/step_count.h"
#include "lab/compare/anchor_gap.h"
#include "lab/compare/compare.h"
#include "lab/compare/compare_report.h"
#include "lab/compare/contract_quantity.h"
#include "lab/runs/data_roles.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/run_records.h"

namespace assay::test_compare {
namespace {

// A run validated at steps 20, 40, ..., whose last loss is `end`.
RunRecord run_of(const std::string& name, int64_t seed, int64_t ffn, double end) {
  RunRecord run = hand_made({.name = name, .seed = seed});
  run.config.model.ffn = ffn;
  run.data_sha256 = {
      {"/d/tokenizer.json", "aaaa"}, {"/d/x_train_0.bin", "bbbb"}, {"/d/x_val_0.bin", "cccc"}};
  run.val_loss_nats.clear();
  for (int64_t step = 20; step <= 100; step += 20)
    run.val_loss_nats.push_back({.step = step, .value = end + 0.01 * double(100 - step)});
  run.steps_done = 100;
  run.tokens = 100 * run.config.run.batch_tokens;
  for (int64_t step = 10; step <= 100; step += 10)
    run.train_s.push_back({.step = step, .value = 0.5 * double(step)});
  return run;
}

// Validated every so many steps up to `last`, beside what it was already.
void validate_every(RunRecord& run, int64_t every, int64_t last) {
  const double end = run.val_loss_nats.back().value;
  std::set<int64_t> steps;
  for (const EvalValue& v : run.val_loss_nats) steps.insert(v.step);
  for (int64_t step = every; step <= last; step += every) steps.insert(step);
  run.val_loss_nats.clear();
  for (const int64_t step : steps)
    run.val_loss_nats.push_back({.step = step, .value = end + 0.01 * double(100 - step)});
}

std::vector<RunRecord> two_models() {
  return {run_of("dense-s1", 1, 64, 3.30), run_of("dense-s2", 2, 64, 3.32),
          run_of("moe-s1", 1, 99, 3.20), run_of("moe-s2", 2, 99, 3.21)};
}

bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

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

TEST_CASE("shared seeds that contradict the means of all are said to") {
  std::vector<RunRecord> runs = {run_of("dense-s1", 1, 64, 3.30), run_of("dense-s2", 2, 64, 3.10),
                                 run_of("moe-s1", 1, 99, 3.25)};
  const Comparison c = compare(runs, {});
  REQUIRE(c.rankings[0].places[0].model == "dense");
  REQUIRE_THAT(comparison_sentence(c),
               Catch::Matchers::StartsWith("dense is 0.0500 nats above moe-s1 in validation loss"));
}

TEST_CASE("models of equal values share a place") {
  std::vector<RunRecord> runs = two_models();
  for (const size_t i : {0, 1}) runs[i + 2].val_loss_nats = runs[i].val_loss_nats;
  runs.push_back(run_of("wide-s1", 1, 128, 3.5));
  runs.push_back(run_of("wide-s2", 2, 128, 3.5));
  Comparison c = compare(runs, {});
  REQUIRE(comparison_sentence(c) ==
          "dense and moe are equal in validation loss at the end: 3.3100 nats. Then wide (3.5000). "
          "Held fixed: steps: 100 steps of 1,000 tokens.");
  const auto json = comparison_json(c)["rankings"][0]["places"];
  REQUIRE(json[0]["place"] == 1);
  REQUIRE(json[1]["place"] == 1);
  REQUIRE(json[2]["place"] == 3);
  REQUIRE(json[0]["note"] == "equal to the next one");
  const std::string text = comparison_text(c);
  REQUIRE(text.find("1.  dense") != std::string::npos);
  REQUIRE(text.find("1.  moe") != std::string::npos);
  REQUIRE(text.find("3.  wide") != std::string::npos);
  REQUIRE(text.find("+0.0000  0.0000  [0.0000, 0.0000]  equal") != std::string::npos);

  // A difference below the digits of a loss is one all the same.
  runs = {run_of("dense-s1", 1, 64, 3.3), run_of("moe-s1", 1, 99, 3.3)};
  runs[1].val_loss_nats.back().value -= 2e-6;
  c = compare(runs, {});
  REQUIRE(c.rankings[0].places[1].place == 2);
  REQUIRE_THAT(comparison_sentence(c),
               Catch::Matchers::StartsWith("moe-s1 is 2.0e-06 nats below dense-s1 in validation"));
}

TEST_CASE("seconds of two CPUs are not ranked") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) {
    run.device = "cpu";
    run.cpu = "a";
  }
  const auto by_seconds = [&] {
    const Comparison c = compare(runs, {.target_loss = 4});
    return std::any_of(c.rankings.begin(), c.rankings.end(),
                       [](const Ranking& r) { return r.unit == "s"; });
  };
  REQUIRE(by_seconds());
  runs[3].cpu = "b";
  REQUIRE(!by_seconds());
}

TEST_CASE("seconds of other ranks or threads are not ranked, nor averaged over seeds") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.device = "cpu", run.ranks = "1", run.threads = "4";
  runs[0].threads = "";  // of an old version
  REQUIRE(compare(runs, {.target_loss = 4}).rankings.size() == 5);
  for (const auto& change : {std::pair("2", "4"), std::pair("1", "4, then 2")}) {
    for (RunRecord* run : {&runs[2], &runs[3]}) {
      run->ranks = change.first;
      run->threads = change.second;
    }
    const Comparison c = compare(runs, {.target_loss = 4});
    REQUIRE(c.rankings.size() == 4);
    REQUIRE(mentions(c.notes, "no ranking by seconds: dense-s"));
    REQUIRE(c.models[1].seconds);
    REQUIRE(c.models[1].target->seconds);
  }
  runs[3].threads = "8";
  const Comparison c = compare(runs, {.target_loss = 4});
  REQUIRE(!c.models[1].seconds);
  REQUIRE(!c.models[1].target->seconds);
  REQUIRE(c.models[1].target->steps);
  REQUIRE(mentions(c.notes,
                   "moe has no seconds: moe-s1 ran on cpu, 4, then 2 threads, moe-s2 on cpu, 8 "
                   "threads"));
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
  REQUIRE(c.models[0].horizon == 500);
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

TEST_CASE("times to a target are not ranked where one model is validated more often") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.eval.every = 20;
  for (const size_t moe : {2, 3}) validate_every(runs[moe], 5, 100);
  Comparison c = compare(runs, {.target_loss = 3.405});
  REQUIRE(c.models[1].target->reached == 2);
  REQUIRE(c.rankings.size() == 1);
  REQUIRE(c.rankings[0].by == "validation loss at the end");
  const std::string why = "dense-s1 was validated every 20 steps, moe-s1 every 5";
  REQUIRE(mentions(c.notes, "no ranking by the time to the target: " + why));
  for (RunRecord& run : runs) run.end = "target_loss";
  c = compare(runs, {.target_loss = 3.405});
  REQUIRE(c.rankings.empty());
  REQUIRE(comparison_json(c)["no_ranking"] == why);
}

TEST_CASE("how often a run was validated is what it did, not what its configuration says now") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.eval.every = 20;
  for (const size_t moe : {2, 3}) validate_every(runs[moe], 5, 50);  // and then every 20
  const Comparison c = compare(runs, {.target_loss = 3.705});        // moe reaches it at step 50
  REQUIRE(c.rankings.size() == 1);
  REQUIRE(mentions(c.notes, "dense-s1 was validated every 20 steps, moe-s1 every 5"));
  for (const size_t moe : {2, 3}) runs[moe] = two_models()[moe];
  for (const size_t moe : {2, 3}) runs[moe].config.eval.every = 10;  // since it has finished
  REQUIRE(compare(runs, {.target_loss = 3.705}).rankings.size() == 5);
  for (const size_t moe : {2, 3}) {  // a landing at step 50
    runs[moe].config.contract.landings = std::vector<double>{0.5};
    auto& losses = runs[moe].val_loss_nats;
    losses.insert(losses.begin() + 2, {.step = 50, .value = 3.705});
  }
  REQUIRE(compare(runs, {.target_loss = 3.705}).rankings.size() == 5);
  for (const size_t moe : {2, 3}) runs[moe].config.contract.landings = std::vector<double>{0.7};
  REQUIRE(mentions(compare(runs, {.target_loss = 3.705}).notes,
                   "dense-s1 was validated every 20 steps, moe-s1 at unequal intervals"));
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

TEST_CASE("runs that stopped at their target are not ranked by final loss") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.run.target_loss = 3.4;
  runs[0].end = "target_loss";
  for (const Ranking& r : compare(runs, {}).rankings) REQUIRE(r.by != "validation loss at the end");
}

TEST_CASE("incomparable runs are refused, or marked and not ranked") {
  const struct {
    const char* says;
    std::function<void(RunRecord&)> change;
  } rows[] = {
      {"tokenizer: aaaa in dense-s1, eeee in moe-s2",
       [](RunRecord& r) { r.data_sha256["/d/tokenizer.json"] = "eeee"; }},
      {"data: x_val_0.bin cccc in dense-s1, x_val_0.bin eeee in moe-s2",
       [](RunRecord& r) { r.data_sha256["/d/x_val_0.bin"] = "eeee"; }},
      {"data: no further shard in dense-s1, x_val_1.bin eeee in moe-s2",
       [](RunRecord& r) { r.data_sha256["/d/x_val_1.bin"] = "eeee"; }},
      {"moe-s2 does not record its training data", [](RunRecord& r) { r.data_sha256.clear(); }},
      {"run.sequence: 256 in dense-s1, 128 in moe-s2",
       [](RunRecord& r) { r.config.run.sequence = 128; }},
      {"eval.tokens: 65536 in dense-s1, 4096 in moe-s2",
       [](RunRecord& r) { r.config.eval.tokens = 4096; }},
      {"data.mask_eos: 0 in dense-s1, 1 in moe-s2",
       [](RunRecord& r) { r.config.data.mask_eos = true; }},
  };
  for (const auto& row : rows) {
    INFO(row.says);
    std::vector<RunRecord> runs = two_models();
    row.change(runs[3]);
    expect_error([&] { compare(runs, {}); }, row.says);
    const Comparison forced = compare(runs, {.incomparable = Incomparable::kMark});
    REQUIRE(mentions(forced.incomparable, row.says));
    REQUIRE(forced.rankings.empty());
    REQUIRE(!forced.no_ranking.empty());
  }
}

TEST_CASE("runs that began from imported weights are not ranked beside others") {
  std::vector<RunRecord> runs = two_models();
  runs[3].imported_sha256 = "aaaa";
  for (const CompareOptions& options : {CompareOptions{}, CompareOptions{.contract = "steps"}}) {
    const Comparison c = compare(runs, options);
    REQUIRE(c.models.size() == 3);
    REQUIRE(c.rankings.empty());
    REQUIRE(comparison_sentence(c) ==
            "No ranking: moe-s2 began from imported weights (imported.json), dense-s1 from its "
            "seed.");
    REQUIRE(mentions(c.notes, "moe-s2 began from imported weights (imported.json): what those"));
    const auto json = comparison_json(c);
    REQUIRE(json["models"][2]["runs"][0]["imported_sha256"] == "aaaa");
    REQUIRE(json["models"][0]["runs"][0]["imported_sha256"].is_null());
  }
  for (RunRecord& run : runs) run.imported_sha256 = "aaaa";
  const Comparison of_one_import = compare(runs, {});
  REQUIRE(of_one_import.models.size() == 2);
  REQUIRE(of_one_import.rankings.size() == 1);
  REQUIRE(mentions(of_one_import.notes, "moe began from imported weights"));
}

TEST_CASE("validation and training data are compared each by itself") {
  const auto with_roles = [] {
    std::vector<RunRecord> runs = two_models();
    for (RunRecord& r : runs) {
      r.data_sha256["/d/x_val_1.bin"] = "dddd";
      r.config.data.train = {"/d/x_train_*.bin"};
      r.config.data.val = {"/d/x_val_*.bin"};
    }
    return runs;
  };
  REQUIRE(incomparable_differences(with_roles()).empty());
  const struct {
    const char* says;
    std::function<void(RunRecord&)> change;
  } rows[] = {
      {"validation data: x_val_0.bin cccc in dense-s1, x_train_0.bin bbbb in moe-s2",
       [](RunRecord& r) { std::swap(r.config.data.train, r.config.data.val); }},
      {"training data: no further shard in dense-s1, x_val_0.bin cccc in moe-s2",
       [](RunRecord& r) { r.config.data.train = {"/d/*.bin"}; }},
      {"validation data that was trained on: none in dense-s1, x_val_0.bin, x_val_1.bin in moe-s2",
       [](RunRecord& r) { r.config.data.train = {"/d/*.bin"}; }},
      {"validation data: x_val_0.bin cccc in dense-s1, a_val.bin dddd in moe-s2",
       [](RunRecord& r) {
         r.data_sha256 = {{"/d/tokenizer.json", "aaaa"},
                          {"/d/a_val.bin", "dddd"},
                          {"/d/b_val.bin", "cccc"},
                          {"/d/x_train_0.bin", "bbbb"}};
         r.config.data.val = {"/d/?_val.bin"};
       }},
  };
  for (const auto& row : rows) {
    INFO(row.says);
    std::vector<RunRecord> runs = with_roles();
    row.change(runs[3]);
    REQUIRE(mentions(incomparable_differences(runs), row.says));
    expect_error([&] { compare(runs, {}); }, "the runs are not comparable: ");
  }
  std::vector<RunRecord> runs = with_roles();
  runs[3].data_sha256 = {{"/other/tokenizer.json", "aaaa"},
                         {"/other/a.bin", "cccc"},
                         {"/other/b.bin", "dddd"},
                         {"/other/c.bin", "bbbb"}};
  runs[3].config.data.val = {"/other/[ab].bin"};
  runs[3].config.data.train = {"/other/c.bin"};
  REQUIRE(incomparable_differences(runs).empty());
}

TEST_CASE("a tokenizer's files are told from shards however data.tokenizer is written") {
  const struct {
    std::string tokenizer;
    std::vector<std::string> files;
  } rows[] = {{"/d/tok.json", {"/d/tok.json"}},
              {"/d", {"/d/tokenizer.json"}},  // the folder of the shards
              {"/d/", {"/d//tokenizer.json"}},
              {"/e/../d/", {"/e/../d//tokenizer.json"}},
              {"/g/vocab.json", {"/g/vocab.json", "/g/merges.txt"}},
              {"/d//vocab.json", {"/d//vocab.json", "/d//merges.txt"}},
              {"/d", {"/d/vocab.json", "/d/merges.txt"}},
              {".", {"./tokenizer.json"}},
              {"./", {".//tokenizer.json"}},
              {"vocab.json", {"vocab.json", "merges.txt"}},
              {"./vocab.json", {"./vocab.json", "./merges.txt"}}};
  for (const auto& row : rows) {
    INFO(row.tokenizer);
    RunRecord run = run_of("a", 1, 64, 3.3);
    run.config.data.tokenizer = row.tokenizer;
    run.config.data.train = {"/d/x_*.bin"};
    run.config.data.val = {"/d/x_val_*.bin"};
    run.data_sha256 = {{"/d/x_train_0.bin", "bbbb"}, {"/d/x_val_0.bin", "cccc"}};
    for (const std::string& file : row.files) {
      REQUIRE(is_tokenizer_file(run, file));
      run.data_sha256[file] = "aaaa";
    }
    for (const char* shard : {"/d/x_train_0.bin", "/d/x_val_0.bin", "/tokenizer.json", "x.bin"})
      REQUIRE_FALSE(is_tokenizer_file(run, shard));
    REQUIRE(trained_validation_files(run) == "x_val_0.bin");
  }
  // Runs that name one tokenizer in two ways are comparable.
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.data.tokenizer = i < 2 ? "/d" : "/d/";
    runs[i].data_sha256 = {{i < 2 ? "/d/tokenizer.json" : "/d//tokenizer.json", "aaaa"},
                           {"/d/x_train_0.bin", i < 2 ? "bbbb" : "dddd"},
                           {"/d/x_val_0.bin", "cccc"}};
    runs[i].config.data.train = {"/d/x_train_*.bin"};
    runs[i].config.data.val = {"/d/x_val_*.bin"};
  }
  const std::vector<std::string> found = incomparable_differences(runs);
  REQUIRE(mentions(found, "training data: x_train_0.bin bbbb in dense-s1"));
  REQUIRE_FALSE(mentions(found, "tokenizer"));
}

TEST_CASE("roles are known of data below a folder whose name has characters of patterns") {
  const TempFolder folder;
  const std::string data = folder / "exp[1]*";
  make_folders(data);
  RunRecord run = run_of("a", 1, 64, 3.3);
  run.config.data.train = {data + "/x_*.bin"};
  run.config.data.val = {data + "/x_val_?.bin"};
  run.data_sha256 = {{data + "/x_train_0.bin", "bbbb"}, {data + "/x_val_0.bin", "cccc"}};
  const std::optional<DataRoles> roles = data_roles(run);
  REQUIRE(roles);
  REQUIRE(roles->train.size() == 2);
  REQUIRE(roles->val.size() == 1);
  REQUIRE(trained_validation_files(run) == "x_val_0.bin");
  run.config.data.val = {folder / "exp[12]*/x_val_*.bin"};  // no such folder: a pattern
  REQUIRE_FALSE(data_roles(run));
}

TEST_CASE("runs that all trained on their validation data are compared with a note") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& r : runs) {
    r.config.data.train = {"/d/*.bin"};
    r.config.data.val = {"/d/x_val_*.bin"};
  }
  const Comparison c = compare(runs, {});
  REQUIRE(c.rankings.size() == 1);
  REQUIRE(mentions(c.notes, "moe-s2 trained on its own validation data (x_val_0.bin)"));
}

TEST_CASE("the same shards in another folder are the same data") {
  std::vector<RunRecord> runs = two_models();
  runs[3].data_sha256 = {
      {"/a/x_val_0.bin", "cccc"}, {"/e/tokenizer.json", "aaaa"}, {"/z/x_train_0.bin", "bbbb"}};
  REQUIRE(incomparable_differences(runs).empty());
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
  REQUIRE(c.rankings[0].places[0].note.starts_with("pathological: routers collapsed; "));
  REQUIRE(c.models[0].health.text() == "dense");
}

TEST_CASE("runs that are not finished are marked and not ranked") {
  for (const std::string end : {"", "interrupted", "non_finite", "collapse_stop", "extended"}) {
    INFO(end);
    std::vector<RunRecord> runs = two_models();
    runs[1].end = end;
    if (end == "extended") {
      runs[1].end = "steps";
      runs[1].steps_done = 80;
    }
    const std::string step = std::to_string(runs[1].steps_done);
    const bool guard = end == "non_finite" || end == "collapse_stop";
    const std::string said =
        guard ? " (stopped by its guard, " + end + ", at step " + step + ")" : "";
    const Comparison c = compare(runs, {});
    REQUIRE(mentions(c.notes, ("dense-s2" + said + " is not finished").c_str()));
    REQUIRE(c.no_ranking == "dense-s2" + said + " is not finished");
  }
}

TEST_CASE("one seed has no interval, and the ranking says so") {
  const std::vector<RunRecord> runs = {run_of("a", 1, 64, 3.3), run_of("b", 1, 99, 3.2)};
  const Comparison c = compare(runs, {});
  REQUIRE(!c.models[0].final_loss->interval95);
  REQUIRE(!c.models[1].loss_against_first->summary.interval95);
  REQUIRE(c.rankings[0].places[0].note == "no interval with one seed");
  REQUIRE(mentions(c.notes, "one seed"));
}

}  // namespace assay::test_compare
