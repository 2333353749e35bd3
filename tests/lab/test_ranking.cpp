#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lab/compare/compare.h"
#include "lab/compare/compare_report.h"
#include "tests/catch.h"
#include "tests/lab/compared_runs.h"

namespace assay::test_ranking {
namespace {

using compared_runs::mentions;
using compared_runs::run_of;
using compared_runs::two_models;

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

}  // namespace

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
  REQUIRE(text.find(" -  equal\n") != std::string::npos);

  // A difference below the digits of a loss is one all the same.
  runs = {run_of("dense-s1", 1, 64, 3.3), run_of("moe-s1", 1, 99, 3.3)};
  runs[1].val_loss_nats.back().value -= 2e-6;
  c = compare(runs, {});
  REQUIRE(c.rankings[0].places[1].place == 2);
  REQUIRE_THAT(comparison_sentence(c),
               Catch::Matchers::StartsWith("moe-s1 is 2.0e-06 nats below dense-s1 in validation"));
}

TEST_CASE("a difference that is equal in a few seeds has no spread to judge by") {
  // moe is at 3.505 two validations of 20 steps earlier, in both seeds.
  std::vector<RunRecord> runs = two_models();
  for (const size_t i : {1, 3}) runs[i].val_loss_nats = runs[i - 1].val_loss_nats;
  for (const size_t i : {2, 3}) {
    for (EvalValue& v : runs[i].val_loss_nats) v.value -= 0.3;
  }
  const Comparison c = compare(runs, {.target_loss = 3.705});
  REQUIRE(c.models[0].target->steps->mean == 60);
  REQUIRE(c.models[1].target->steps->mean == 20);
  REQUIRE(c.models[1].target->steps->below == 20);
  const std::string why = "equal in all seeds: no spread to judge by";
  REQUIRE(c.rankings.size() == 5);
  for (const Ranking& r : c.rankings) {
    INFO(r.by);
    REQUIRE(r.places[0].model == "moe");
    REQUIRE(r.places[0].note == "no interval of equal values, paired difference " + why);
  }
  REQUIRE_THAT(comparison_sentence(c), Catch::Matchers::ContainsSubstring(
                                           "Over the seeds 1, 2 the difference is " + why + "."));
  const std::string text = comparison_text(c);
  INFO(text);
  REQUIRE(text.find("-  " + why) != std::string::npos);
  REQUIRE(text.find("excludes 0") == std::string::npos);
  REQUIRE(text.find("[60, 60]") == std::string::npos);
  REQUIRE(comparison_json(c)["models"][1]["against_first"]["interval95"].is_null());
}

TEST_CASE("the interval of the time to a target reaches to the validation before") {
  std::vector<RunRecord> runs = two_models();
  runs[1].val_loss_nats[2].value = 4;  // dense is at 3.72 at steps 60 and 80
  const Comparison c = compare(runs, {.target_loss = 3.72});
  const Summary& steps = *c.models[0].target->steps;
  REQUIRE(steps.mean == 70);
  const Interval student = student95(steps).value();
  REQUIRE(steps.interval95->low == student.low - 20);
  REQUIRE(steps.interval95->high == student.high);
  const auto ranking = std::find_if(c.rankings.begin(), c.rankings.end(),
                                    [](const Ranking& r) { return r.unit == "steps"; });
  const Summary& next = ranking->places[0].to_next->summary;  // moe - dense
  REQUIRE(next.below == 20);
  REQUIRE(next.above == 20);
}

TEST_CASE("a landing that one model has alone is no crossing") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.eval.every = 20;
  for (const size_t moe : {2, 3}) {
    runs[moe].config.contract.landings = std::vector<double>{0.5};
    auto& losses = runs[moe].val_loss_nats;
    losses.insert(losses.begin() + 2, {.step = 50, .value = 3.705});
  }
  const Comparison c = compare(runs, {.target_loss = 3.705});
  REQUIRE(c.left_out_steps == LeftOutSteps{50});
  REQUIRE(c.models[1].target->steps->mean == 60);
  REQUIRE_THAT(comparison_text(c),
               Catch::Matchers::ContainsSubstring("Landings at steps 50 are not read"));
  REQUIRE(comparison_json(c)["landings_left_out"][0] == 50);
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

TEST_CASE("seconds of models of two machines have a note, with and without a target, once") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.device = "cpu", run.cpu = "a";
  REQUIRE(compare(runs, {}).notes.empty());
  runs[2].cpu = runs[3].cpu = "b";
  const std::string why = "dense-s1 ran on cpu, a, moe-s1 on cpu, b";
  const Comparison c = compare(runs, {});
  REQUIRE(c.notes ==
          std::vector<std::string>{
              "the seconds of the models are of different machines and do not compare: " + why});
  REQUIRE((c.models[0].seconds && c.models[1].seconds));
  REQUIRE(compare(runs, {.target_loss = 4}).notes ==
          std::vector<std::string>{"no ranking by seconds: " + why});
  // A model without seconds has nothing to set beside those of the other.
  runs[2].cpu = "a";
  const std::vector<std::string> notes = compare(runs, {}).notes;
  REQUIRE(notes.size() == 1);
  REQUIRE(notes[0].starts_with("moe has no seconds: "));
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

TEST_CASE("runs that stopped at their target are not ranked by final loss") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.run.target_loss = 3.4;
  runs[0].end = "target_loss";
  for (const Ranking& r : compare(runs, {}).rankings) REQUIRE(r.by != "validation loss at the end");
}

TEST_CASE("the sentence names models that have no place") {
  std::vector<RunRecord> runs = two_models();
  runs.push_back(run_of("wide-s1", 1, 128, 3.4));
  runs.push_back(run_of("wide-s2", 2, 128, 3.6));
  for (RunRecord& run : runs) run.config.run.target_loss = 3.45;
  runs[0].end = "target_loss";
  REQUIRE_THAT(
      comparison_sentence(compare(runs, {})),
      Catch::Matchers::ContainsSubstring("moe is 20 steps below dense in steps to 3.45 ") &&
          Catch::Matchers::ContainsSubstring(
              " wide is not ranked: not all of its runs reached the target. Held fixed"));
  runs.push_back(run_of("far-s1", 1, 130, 3.9));
  runs.back().config.run.target_loss = 3.45;
  REQUIRE_THAT(comparison_sentence(compare(runs, {})),
               Catch::Matchers::ContainsSubstring(
                   " wide and far-s1 are not ranked: not all of their runs reached the target."));
  for (RunRecord& run : runs) run.end = "steps";
  runs.pop_back();
  REQUIRE_THAT(comparison_sentence(compare(runs, {})),
               !Catch::Matchers::ContainsSubstring("not ranked"));
  runs.back().val_loss_nats.clear();
  REQUIRE_THAT(comparison_sentence(compare(runs, {})),
               Catch::Matchers::ContainsSubstring(
                   " wide is not ranked: not all of its runs have a validation loss."));
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

TEST_CASE("a run that was never validated has no values of a last evaluation") {
  std::vector<RunRecord> runs = two_models();
  runs[1].end = "";
  REQUIRE(mentions(compare(runs, {}).notes,
                   "dense-s2 is not finished: its values are from its last evaluation"));
  runs[1].val_loss_nats.clear();
  REQUIRE(mentions(compare(runs, {}).notes,
                   "dense-s2 is not finished, and was not validated: it has no loss"));
}

TEST_CASE("one seed has no interval, and the ranking says so") {
  const std::vector<RunRecord> runs = {run_of("a", 1, 64, 3.3), run_of("b", 1, 99, 3.2)};
  const Comparison c = compare(runs, {});
  REQUIRE(!c.models[0].final_loss->interval95);
  REQUIRE(!c.models[1].loss_against_first->summary.interval95);
  REQUIRE(c.rankings[0].places[0].note == "no interval with one seed");
  REQUIRE(mentions(c.notes, "one seed"));
}

}  // namespace assay::test_ranking
