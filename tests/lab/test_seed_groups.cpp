#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "lab/runs/first_weights.h"
#include "lab/runs/seed_groups.h"
#include "lab/runs/time_to_target.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/lab/run_records.h"

namespace assay::test_seed_groups {
namespace {

std::optional<double> final_loss(const RunRecord& run) {
  if (const auto last = run.last_val()) return last->value;
  return std::nullopt;
}

std::string name_of(const std::vector<std::string>& names) {
  std::vector<RunRecord> runs;
  for (size_t i = 0; i < names.size(); ++i)
    runs.push_back(hand_made({.name = names[i], .seed = int64_t(i)}));
  return group_by_seed(runs).front().name;
}

}  // namespace

TEST_CASE("runs that differ only in seed are one model, by ascending seed") {
  std::vector<RunRecord> runs = {hand_made({.name = "moe-s3", .seed = 3}),
                                 hand_made({.name = "dense-s1", .seed = 1}),
                                 hand_made({.name = "moe-s1", .seed = 1})};
  runs[1].config.model.ffn = 123;
  const std::vector<SeedGroup> groups = group_by_seed(runs);
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].name == "moe");
  REQUIRE(groups[0].runs == std::vector<const RunRecord*>{&runs[2], &runs[0]});
  REQUIRE(groups[1].name == "dense-s1");
}

TEST_CASE("which fields distinguish models") {
  const struct {
    const char* what;
    std::function<void(Config&)> change;
    bool same;
  } rows[] = {
      {"the seed", [](Config& c) { c.run.seed = 7; }, true},
      {"threads", [](Config& c) { c.run.threads = 7; }, true},
      {"how often it is logged", [](Config& c) { c.run.log_every = 7; }, true},
      {"where the corpus is kept", [](Config& c) { c.data.cache = "/elsewhere"; }, true},
      {"how often data may be seen", [](Config& c) { c.data.max_epochs = 9; }, true},
      {"whose validation data it is", [](Config& c) { c.data.reference = "fineweb"; }, true},
      {"whether the tokenizer is checked", [](Config& c) { c.data.check_tokenizer = false; }, true},
      {"a rule that stops no run", [](Config& c) { c.telemetry.collapse_stop.emplace(); }, true},
      {"ranks that share experts", [](Config& c) { c.parallel.expert_ranks = 2; }, true},
      {"one part of the batch", [](Config& c) { c.parallel.parts = 1; }, true},
      {"parts of the batch", [](Config& c) { c.parallel.parts = 2; }, false},
      {"products not yet resolved",
       [](Config& c) { c.precision.products = ProductsMode::kSimulated; }, true},
      {"native products", [](Config& c) { c.precision.products = ProductsMode::kNative; }, false},
      {"where the shards are",
       [](Config& c) {
         c.data.train = {"/b/t1.bin", "/b/t2.bin"};
       },
       true},
      {"other shards",
       [](Config& c) {
         c.data.train = {"/a/t1.bin", "/a/t3.bin"};
       },
       false},
      {"steps", [](Config& c) { c.run.steps = 7; }, false},
      {"the target", [](Config& c) { c.run.target_loss = 3.28; }, false},
      {"the contract", [](Config& c) { c.contract.kind = ContractKind::kActiveDN; }, false},
      {"the recipe", [](Config& c) { c.precision.recipe = "fp32"; }, false},
      {"a learning rate", [](Config& c) { c.optimizer.router_lr = 1e-4; }, false},
      {"experts", [](Config& c) { c.model.moe.emplace(); }, false},
      {"when it is evaluated", [](Config& c) { c.eval.every = 7; }, false},
  };
  for (const auto& row : rows) {
    INFO(row.what);
    std::vector<RunRecord> runs = {hand_made({.name = "a", .seed = 1}),
                                   hand_made({.name = "b", .seed = 2})};
    for (RunRecord& run : runs) run.config.data.train = {"/a/t1.bin", "/a/t2.bin"};
    row.change(runs[1].config);
    REQUIRE((group_by_seed(runs).size() == 1) == row.same);
  }
}

TEST_CASE("a rule that stopped a run tells the seeds with it from those without") {
  std::vector<RunRecord> runs = {hand_made({.name = "a", .seed = 1}),
                                 hand_made({.name = "b", .seed = 2}),
                                 hand_made({.name = "c", .seed = 3})};
  for (size_t i : {1, 2}) runs[i].config.telemetry.collapse_stop.emplace();
  REQUIRE(group_by_seed(runs).size() == 1);
  runs[2].end = "collapse_stop";
  REQUIRE(group_by_seed(runs).size() == 2);
  REQUIRE(group_by_seed(runs)[1].runs.size() == 2);  // with one rule, stopped or not
}

TEST_CASE("a seed that was trained twice, under other limits, is of two models") {
  std::vector<RunRecord> runs = {hand_made({.name = "a1", .seed = 1}),
                                 hand_made({.name = "a2", .seed = 2}),
                                 hand_made({.name = "b1", .seed = 1})};
  REQUIRE_THROWS_AS(group_by_seed(runs), UserError);  // of one configuration
  for (const auto& limit : {+[](Config& c) { c.telemetry.collapse_stop.emplace(); },
                            +[](Config& c) { c.data.max_epochs = 9; },
                            +[](Config& c) { c.parallel.expert_ranks = 2; }}) {
    std::vector<RunRecord> limited = runs;
    limit(limited[2].config);
    const std::vector<SeedGroup> groups = group_by_seed(limited);
    REQUIRE(groups.size() == 2);
    REQUIRE(groups[0].runs.size() == 2);
  }
}

TEST_CASE("a seed that was trained on other data, under the same names, is of two models") {
  std::vector<RunRecord> runs;
  for (const char* folder : {"clean", "noisy"}) {
    for (int64_t seed : {1, 2}) {
      runs.push_back(
          hand_made({.name = folder + std::string("-seed") + char('0' + seed), .seed = seed}));
      runs.back().config.data.train = {"/" + std::string(folder) + "/x_train_0.bin"};
      runs.back().data_sha256 = {{runs.back().config.data.train[0], "aaaa"}, {"/x_val.bin", "bb"}};
    }
  }
  REQUIRE_THROWS_AS(group_by_seed(runs), UserError);  // the same text in two folders
  for (size_t i : {2, 3}) runs[i].data_sha256["/noisy/x_train_0.bin"] = "cccc";
  const std::vector<SeedGroup> groups = group_by_seed(runs);
  REQUIRE(groups.size() == 2);
  REQUIRE((groups[0].name == "clean" && groups[0].runs.size() == 2));
  REQUIRE((groups[1].name == "noisy" && groups[1].runs.size() == 2));
  runs.resize(3);
  runs[2].config.run.seed = 3;
  REQUIRE(group_by_seed(runs).size() == 2);
  runs[2].data_sha256.clear();  // it tells nothing
  REQUIRE(group_by_seed(runs).size() == 1);
}

TEST_CASE("a run from imported weights is a seed of those of one import only") {
  std::vector<RunRecord> runs = {hand_made({.name = "a", .seed = 1}),
                                 hand_made({.name = "b", .seed = 2}),
                                 hand_made({.name = "c", .seed = 3})};
  REQUIRE(group_by_seed(runs).size() == 1);
  runs[1].imported_sha256 = "aaaa";
  REQUIRE(group_by_seed(runs).size() == 2);
  REQUIRE(recipe_identity(runs[0]) != recipe_identity(runs[1]));
  REQUIRE(other_first_weights(runs) ==
          "b began from imported weights (imported.json), a from its seed");
  runs[0].imported_sha256 = "bbbb";
  runs[2].imported_sha256 = "aaaa";
  REQUIRE(group_by_seed(runs).size() == 2);
  REQUIRE(group_by_seed(runs)[1].runs.size() == 2);
  REQUIRE(other_first_weights(runs) ==
          "b began from imported weights (imported.json), a from others");
  runs[0].imported_sha256 = "aaaa";
  REQUIRE(group_by_seed(runs).size() == 1);
  REQUIRE(other_first_weights(runs).empty());
}

TEST_CASE("the name of a model is what its runs share, without the seed") {
  REQUIRE(name_of({"moe-seed1", "moe-seed2"}) == "moe");
  REQUIRE(name_of({"demo-moe", "demo-moe-seed2", "demo-moe-seed3"}) == "demo-moe");
  REQUIRE(name_of({"moe-64-s10", "moe-64-s11"}) == "moe-64");
  REQUIRE(name_of({"moe-64", "moe-64-seed2"}) == "moe-64");
  REQUIRE(name_of({"moe_1", "moe_2"}) == "moe");
  REQUIRE(name_of({"cpu-moe-8-bf16-seed-1", "cpu-moe-8-bf16-seed-2"}) == "cpu-moe-8-bf16");
  REQUIRE(name_of({"moe-64"}) == "moe-64");
  REQUIRE(name_of({"1", "2"}) == "runs");  // the name of their folder
  std::vector<RunRecord> two = {hand_made({.name = "a"}), hand_made({.name = "a"})};
  two[1].config.model.ffn = 123;
  REQUIRE(group_by_seed(two)[1].name == "a (2)");
}

TEST_CASE("models of one folder whose runs' names have nothing in common are told apart") {
  std::vector<RunRecord> runs;
  for (const char* name : {"alpha", "beta", "delta", "gamma", "eps", "zeta"}) {
    runs.push_back(hand_made({.name = name, .seed = int64_t(runs.size() % 3) + 1}));
    if (runs.size() > 3) runs.back().config.model.ffn = 123;
  }
  const std::vector<SeedGroup> both = group_by_seed(runs);
  REQUIRE(both.size() == 2);
  REQUIRE(both[0].name == "alpha and 2 more");
  REQUIRE(both[1].name == "gamma and 2 more");
  const std::vector<RunRecord> one(runs.begin(), runs.begin() + 3);
  REQUIRE(group_by_seed(one).front().name == "runs");
  // Beside a model that the folder does not name.
  runs.resize(4);
  REQUIRE(group_by_seed(runs)[0].name == "runs");
  REQUIRE(group_by_seed(runs)[1].name == "gamma");
}

TEST_CASE("models in folders of one name are named with the folders before it") {
  const auto names_of = [](const std::vector<std::string>& paths) {
    std::vector<RunRecord> runs;
    for (const std::string& path : paths) {
      runs.push_back(hand_made({.name = path.substr(path.rfind('/') + 1)}));
      runs.back().path = "/nowhere/" + path;
      // A model for each folder two above, with a run for each seed.
      runs.back().config.model.ffn = 100 + int64_t(path.front());
      runs.back().config.run.seed = int64_t(runs.size());
    }
    std::vector<std::string> names;
    for (const SeedGroup& group : group_by_seed(runs)) names.push_back(group.name);
    return names;
  };
  using Names = std::vector<std::string>;
  REQUIRE(names_of({"x/a", "y/a"}) == Names{"x/a", "y/a"});
  REQUIRE(names_of({"x/a", "y/a", "z/b"}) == Names{"x/a", "y/a", "b"});
  REQUIRE(names_of({"x/a-s1", "x/a-s2", "y/a-s1", "y/a-s2"}) == Names{"x/a", "y/a"});
  REQUIRE(names_of({"x/m/1", "x/m/2", "y/m/1", "y/m/2"}) == Names{"x/m", "y/m"});
  REQUIRE(names_of({"x/1/a", "x/2/a"}) == Names{"a"});
}

TEST_CASE("a seed counts once") {
  const std::vector<RunRecord> runs = {hand_made({.name = "a", .seed = 5}),
                                       hand_made({.name = "b", .seed = 5})};
  expect_error([&] { group_by_seed(runs); },
               "runs/a and runs/b are the same configuration with the same seed 5");
}

TEST_CASE("values over seeds skip runs without a value") {
  const std::vector<RunRecord> runs = {
      hand_made({.name = "a1", .seed = 1, .val_loss_nats = {{.step = 100, .value = 3.5}}}),
      hand_made({.name = "a2", .seed = 2}),
      hand_made({.name = "a3", .seed = 3, .val_loss_nats = {{.step = 100, .value = 3.7}}})};
  const SeedValues values = values_of(group_by_seed(runs).front(), final_loss);
  REQUIRE(values.size() == 2);
  REQUIRE(values[1].seed == 3);
  REQUIRE(summarise(values)->mean == Approx(3.6));
  REQUIRE(!summarise(SeedValues{}));
}

TEST_CASE("a run whose loss is NaN is named") {
  const std::vector<RunRecord> runs = {
      hand_made({.name = "a1", .seed = 1, .val_loss_nats = {{.step = 100, .value = NAN}}})};
  expect_error([&] { values_of(group_by_seed(runs).front(), final_loss); },
               "runs/a1: a value to compare is nan");
}

TEST_CASE("what two configurations differ in beside their seed") {
  const RunRecord first = hand_made({.name = "a", .seed = 1});
  RunRecord second = hand_made({.name = "b", .seed = 2});
  second.config.run.threads = 3;
  REQUIRE(model_differences(first.config, second.config).empty());
  second.config.optimizer.lr *= 2;
  second.config.model.layers += 1;
  const std::vector<std::string> fields = {"model.layers", "optimizer.lr"};
  REQUIRE(model_differences(first.config, second.config) == fields);
  REQUIRE(model_differences(second.config, first.config) == fields);
}

TEST_CASE("a trunk and its branches are endpoints of one model") {
  RunRecord trunk = hand_made({.name = "moe"}), branch = hand_made({.name = "moe-branch-40"});
  branch.config.run.steps = 40;
  branch.config.schedule.warmdown = 8;
  branch.config.contract.fraction = 0.4;
  branch.config.eval.every = 10;
  RunRecord other = hand_made({.name = "faster"});
  other.config.optimizer.lr *= 2;
  REQUIRE(model_identity(trunk.config) != model_identity(branch.config));
  REQUIRE(recipe_identity(trunk.config) == recipe_identity(branch.config));
  REQUIRE(recipe_identity(trunk.config) != recipe_identity(other.config));
  const std::vector<RunRecord> runs = {trunk, branch, other};
  const auto recipe = [](const RunRecord& run) { return recipe_identity(run.config); };
  const auto groups = group_runs(runs, recipe, [](const RunRecord&) { return std::string(); });
  REQUIRE(groups.size() == 2);
  REQUIRE(groups[0].name == "moe");
  REQUIRE(groups[0].runs.size() == 2);
  const auto named = group_runs(runs, recipe, [](const RunRecord&) { return std::string("m"); });
  REQUIRE(named[1].name == "m (2)");
}

TEST_CASE("differences are paired by seed, for any order and with missing seeds") {
  const SeedValues a = {
      {.seed = 1, .value = 3.0}, {.seed = 2, .value = 4.0}, {.seed = 4, .value = 9.0}};
  const SeedValues b = {
      {.seed = 2, .value = 3.5}, {.seed = 1, .value = 2.25}, {.seed = 3, .value = 1.0}};
  const auto difference = paired_difference(a, b);
  REQUIRE(difference->seeds == std::vector<int64_t>{1, 2});
  REQUIRE(difference->summary.n == 2);
  REQUIRE(difference->summary.mean == 0.625);
  REQUIRE(!paired_difference(a, {{.seed = 9, .value = 1.0}}));
}

TEST_CASE("time to a target in steps, tokens, FLOPs and seconds") {
  RunRecord run = hand_made(
      {.name = "a", .val_loss_nats = {{.step = 20, .value = 3.5}, {.step = 40, .value = 3.2}}});
  const auto time = time_to_target(run, 3.28);
  REQUIRE(time->steps == 40);
  REQUIRE(time->tokens == 40e3);
  REQUIRE(time->flops == 30.0 * 40e3);
  REQUIRE(time->seconds.value() == 20);
  REQUIRE(time->steps_before == 20);
  REQUIRE(time_to_target(run, 3.5)->steps_before == 0);
  REQUIRE(!time_to_target(run, 3.1));
  run.train_s.clear();
  REQUIRE(!time_to_target(run, 3.28)->seconds);
}

TEST_CASE("a cost to a target is known to the evaluation before, and so is a difference of two") {
  const auto model = [](const std::vector<EvalValue>& losses) {
    return hand_made({.name = "a", .val_loss_nats = losses});
  };
  const RunRecord early = model({{.step = 20, .value = 3.5}, {.step = 40, .value = 3.2}}),
                  late = model({{.step = 20, .value = 3.6},
                                {.step = 50, .value = 3.5},
                                {.step = 60, .value = 3.2}});
  const SeedGroup a{.name = "a", .runs = {&early}}, b{.name = "b", .runs = {&late}};
  const struct {
    TargetCost cost;
    double per_step;
  } rows[] = {{TargetCost::kSteps, 1},
              {TargetCost::kTokens, 1000},
              {TargetCost::kSeconds, 0.5},
              {TargetCost::kFlops, 30e3}};
  for (const auto& row : rows) {
    const SeedValues of_a = costs_to_target(a, 3.28, row.cost),
                     of_b = costs_to_target(b, 3.28, row.cost);
    REQUIRE(of_a.at(0).value == 40 * row.per_step);
    REQUIRE(of_a.at(0).below == 20 * row.per_step);
    REQUIRE(of_a.at(0).above == 0);
    const SeedValue difference = subtract(of_a, of_b).at(0);
    REQUIRE(difference.value == -20 * row.per_step);
    REQUIRE(difference.below == 20 * row.per_step);
    REQUIRE(difference.above == 10 * row.per_step);
    const SeedValue other = negated(subtract(of_a, of_b)).at(0);
    REQUIRE(other.below == 10 * row.per_step);
    const SeedValue sum = subtract(of_a, negated(of_b)).at(0);
    REQUIRE(sum.value == 100 * row.per_step);
    REQUIRE(sum.below == 30 * row.per_step);
    REQUIRE(sum.above == 0);
    REQUIRE(summarise(subtract(of_a, of_b))->above == 10 * row.per_step);
  }
  REQUIRE(costs_to_target(a, 3.1, TargetCost::kSteps).empty());
}

TEST_CASE("landings that not every model has are no crossings, but a run's last step is one") {
  // Horizons 886 and 720, validated every 120 steps and at their halves: 443 and 360. Both cross
  // at 430.
  const auto model = [](int64_t horizon) {
    RunRecord run = hand_made({.name = "a", .steps = horizon});
    run.config.eval.every = 120;
    run.config.contract.landings = std::vector<double>{0.5, 1};
    run.steps_done = horizon;
    for (int64_t step = 1; step <= horizon; ++step) {
      const bool is_read = step % 120 == 0 || step == horizon || step == (horizon + 1) / 2;
      if (is_read) run.val_loss_nats.push_back({.step = step, .value = step < 430 ? 4.0 : 3.0});
    }
    return run;
  };
  const RunRecord longer = model(886), shorter = model(720);
  REQUIRE(time_to_target(longer, 3.5)->steps == 443);
  const LeftOutSteps uneven = uneven_landings({&longer, &shorter});
  REQUIRE(uneven == LeftOutSteps{443});  // 360 is a multiple of 120
  for (const RunRecord* run : {&longer, &shorter}) {
    REQUIRE(time_to_target(*run, 3.5, uneven)->steps == 480);
    REQUIRE(time_to_target(*run, 3.5, uneven)->steps_before == 360);
  }
  REQUIRE(uneven_landings({&longer, &longer}).empty());
  RunRecord stopped = longer;  // at its target, by the landing
  stopped.val_loss_nats.resize(4);
  stopped.steps_done = 443;
  REQUIRE(time_to_target(stopped, 3.5, uneven)->steps == 443);
  RunRecord ended = shorter;  // before the landing
  ended.steps_done = 360;
  ended.val_loss_nats.resize(3);
  REQUIRE(uneven_landings({&longer, &ended}).empty());
}

TEST_CASE("a run given twice or missing is refused by name") {
  expect_error([] { read_runs({"nowhere/run"}); }, "nowhere/run");
}

}  // namespace assay::test_seed_groups
