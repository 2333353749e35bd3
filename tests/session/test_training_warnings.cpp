#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "engine/config/check.h"
#include "engine/config/yaml.h"
#include "models/audit/horizon.h"
#include "session/training_warnings.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_training_warnings {

namespace {

std::string warnings_of(const std::string& text, std::vector<std::string> sets) {
  std::string all;
  const Config config = parse_config_text(text, "test", ".", sets);
  const auto is_given = [&](const std::string& field) {
    return std::any_of(sets.begin(), sets.end(),
                       [&](const std::string& set) { return gives_field(set, field); });
  };
  for (const std::string& line : training_warnings(config, is_given)) all += line + "\n";
  return all;
}

constexpr const char* kDense = "run: {steps: 100, threads: 1}\n";
constexpr const char* kMoe = "model: {moe: {experts: 8}}\nrun: {steps: 100, threads: 1}\n";

TEST_CASE("a setting that nothing uses is named") {
  struct Case {
    const char* text;
    std::vector<std::string> sets;
    const char* part;
  };
  const Case cases[] = {
      {kDense, {"optimizer.router_lr=1e-3"}, "optimizer.router_lr = 0.001 is not used: the model"},
      {kDense, {"optimizer.expert_lr=1e-3"}, "optimizer.expert_lr = 0.001 is not used: the model"},
      {kDense,
       {"schedule.warmdown=9", "schedule.floor=1e-5"},
       "schedule.floor = 1e-05 is not used: it is where a cosine ends; linear"},
      {kDense,
       {"schedule.floor=1e-4"},
       "schedule.floor = 0.0001 is not used: it is where a cosine ends, and the rate does not fall "
       "at all (schedule: {decay: cosine})"},
      {kDense,
       {"model.tie_embeddings=true", "model.head_init=2"},
       "model.head_init = 2 is not used"},
      {kDense,
       {"eval.source_tokens=64"},
       "eval.source_tokens = 64 is not used: there is no data.m"},
      {kMoe,
       {"model.moe.router.bias_rate=0", "model.moe.router.bias_rule=sign"},
       "bias_rule is not"},
      {kMoe,
       {"optimizer.kind=muon", "optimizer.expert_beta2=0.9"},
       "optimizer.expert_beta2 = 0.9 is not used: the experts' matrices are Muon's"},
      {kMoe,
       {"optimizer.kind=muon", "optimizer.muon.lr=0.01", "optimizer.expert_lr=1e-5"},
       "optimizer.expert_lr = 1e-05 is not used: the experts' matrices are Muon's"},
      {kDense,
       {"optimizer.kind=muon", "optimizer.muon.weight_decay=0.2", "optimizer.weight_decay=5"},
       "optimizer.weight_decay = 5 is not used: what decays are Muon's matrices"},
      {kMoe,
       {"model.moe.top_k=1", "model.moe.router.aux=gates"},
       "model.moe.router.aux = gates has no effect: model.moe.top_k is 1"},
      {kMoe,
       {"model.moe.top_k=1", "model.moe.router.aux=gates", "model.moe.router.bias_rate=0"},
       "the routers are not balanced"},
      {kMoe,
       {"model.moe.top_k=1", "model.moe.router.aux=gates", "model.moe.router.bias_rate=0"},
       "every gate is 1: the routers learn nothing (router"},
      {kMoe,
       {"optimizer.kind=muon", "model.moe.router.aux=none", "model.moe.router.bias_rate=0"},
       "optimizer.kind = muon beside routers that are not balanced: Muon goes on stepping an "
       "expert "
       "without tokens"},
      {kMoe,
       {"model.moe.top_k=1", "model.moe.router.aux=switch"},
       "every gate is 1: the routers learn from their auxiliary losses alone"},
      {kMoe,
       {"model.moe.router.aux=none", "model.moe.router.aux_alpha=0.5"},
       "aux_alpha = 0.5 is no"},
      {kMoe,
       {"model.moe.router.score=softmax", "model.moe.router.route_scale=2"},
       "route_scale = 2"},
      {kMoe,
       {"model.moe.router.aux=none", "model.moe.router.aux_scope=sequence"},
       "aux_scope is not used: aux is none"},
      {kMoe,
       {"telemetry.collapse_stop={at_least: 0.9, for: 11, from: 0.5}", "run.log_every=5"},
       "collapse_stop can never stop this run: it needs 11 logged steps in a row (for), and the "
       "run "
       "logs at most 10 between its `from` and its last step (100 steps, run.log_every 5)"},
      {kMoe,
       {"telemetry.collapse_stop={at_least: 0.9, for: 10}", "run.log_every=10", "eval.every=50"},
       "it needs 10 logged steps in a row (for), and the run logs at most 9"},
      {kMoe,
       {"model.moe.experts=4096", "model.moe.top_k=1", "run.batch_tokens=256", "run.micro_batch=1",
        "telemetry.window=5",
        "telemetry.collapse_stop={measure: dead_for_norm, at_least: 0.5, for: 10}"},
       "telemetry.collapse_stop holds however even the routers are: the window gives each "
       "expert 0.31 assignments, and sampling alone then makes dead_for_norm 0.732 (its bound: "
       "0.5)"},
      {kMoe,
       {"model.moe.experts=4096", "model.moe.top_k=1", "run.batch_tokens=256", "run.micro_batch=1",
        "telemetry.collapse_stop={measure: entropy_norm, at_most: 0.8, for: 10}"},
       "a step gives each expert 0.062 assignments, and sampling alone then makes entropy_norm 0."},
      {kMoe,
       {"model.moe.experts=4096", "model.moe.top_k=1", "run.batch_tokens=256", "run.micro_batch=1",
        "telemetry.collapse_stop={measure: gini, at_least: 0.9, for: 10}"},
       "sampling alone then makes gini 0.941 (its bound: 0.9)"},
      {kDense,
       {"contract.coefficient=20"},
       "contract.coefficient = 20 is not used: contract.kind is steps, which takes run.steps"},
      {kDense,
       {"optimizer.expert_beta2=0.9"},
       "optimizer.expert_beta2 = 0.9 is not used: the model"},
      {kMoe,
       {"model.moe.router.bias_rate=0", "model.moe.router.bias_follows_lr=true"},
       "model.moe.router.bias_follows_lr is not used: bias_rate is 0"},
      {kDense,
       {"precision.recipe=bf16", "precision.bf16_tail=0.5"},
       "precision.bf16_tail = 0.5 is not used: recipe bf16 quantises nothing"},
      {kDense, {"precision.bf16_first_layers=2"}, "bf16_first_layers = 2 is not used: recipe auto"},
      {kDense,
       {"precision.recipe=fp32", "precision.bf16_last_layers=1"},
       "bf16_last_layers = 1 is not used: recipe fp32 quantises nothing"},
      {kDense,
       {"contract.step_seconds=2"},
       "contract.step_seconds = 2 is not used: contract.kind is steps, not seconds"},
      {kDense,
       {"contract={kind: activeDN, coefficient: 20, shared_in_total: false}"},
       "contract.shared_in_total = false is not used: contract.kind is activeDN, not totalDN"},
      {kMoe,
       {"model.moe.router.aux=gates", "model.moe.router.aux_scope=step", "parallel.parts=4"},
       "aux_scope = step counts the part of a step so far, and parallel.parts = 4"},
      {"data: {synth: {}, val: [v.bin]}\n", {}, "data.val is not used: data.synth has its own"},
      {"data: {synth: {}, tokenizer: t.json}\n", {}, "data.tokenizer is not used: data.synth has"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.part);
    REQUIRE(warnings_of(c.text, c.sets).find(c.part) != std::string::npos);
  }
}

TEST_CASE("a setting that is used is not") {
  REQUIRE(warnings_of(kDense, {}) == "");
  REQUIRE(warnings_of(kMoe, {}) == "");
  REQUIRE(warnings_of(kMoe, {"optimizer.router_lr=1e-3", "optimizer.expert_lr=1e-3"}) == "");
  REQUIRE(warnings_of(kDense, {"contract={kind: totalDN, coefficient: 20}"}) == "");
  REQUIRE(warnings_of(kDense,
                      {"contract={kind: totalDN, coefficient: 20, shared_in_total: false}"}) == "");
  REQUIRE(warnings_of(kDense, {"contract={kind: seconds, coefficient: 20, step_seconds: 2}"}) ==
          "");
  REQUIRE(warnings_of(kDense, {"precision.recipe=nvfp4", "precision.bf16_tail=0.5"}) == "");
  REQUIRE(warnings_of(kDense, {"precision.recipe=bf16", "precision.bf16_first_layers=1",
                               "precision.override=[weight=nvfp4]"}) == "");
  REQUIRE(warnings_of(kDense, {"schedule.decay=cosine", "schedule.floor=1e-5"}) == "");
  REQUIRE(warnings_of(kMoe, {"telemetry.collapse_stop={at_least: 0.9, for: 10, from: 0.5}",
                             "run.log_every=5"}) == "");
  REQUIRE(warnings_of(kMoe, {"optimizer.kind=muon", "optimizer.expert_lr=1e-3",
                             "optimizer.weight_decay=0.2"}) == "");
  REQUIRE(warnings_of(kMoe, {"model.moe.router.aux=gates", "model.moe.router.bias_rate=0"}) == "");
  REQUIRE(warnings_of(kMoe, {"optimizer.kind=muon", "model.moe.router.aux=gates",
                             "model.moe.router.bias_rate=0"}) == "");
  REQUIRE(warnings_of(kMoe, {"model.moe.router.aux=gates", "model.moe.router.aux_scope=step"}) ==
          "");
  REQUIRE(warnings_of(kMoe, {"model.moe.router.aux=gates", "parallel.parts=4"}) == "");
  // 0.07 of 100 steps is 7 and not the double above it.
  REQUIRE(warnings_of(kMoe, {"telemetry.collapse_stop={at_least: 0.9, for: 93, from: 0.07}"}) ==
          "");
  // Even routers pass these bounds, in a window of 100 steps too.
  REQUIRE(warnings_of(kMoe, {"model.moe.experts=4096", "run.batch_tokens=256", "run.micro_batch=1",
                             "telemetry.collapse_stop={measure: dead_for_norm, at_least: 0.5}"}) ==
          "");
  REQUIRE(warnings_of(kMoe, {"telemetry.collapse_stop={measure: active_norm, at_most: 0.5}"}) ==
          "");
  // Validated steps are logged, too.
  REQUIRE(warnings_of(kMoe, {"telemetry.collapse_stop={at_least: 0.9, for: 11}", "run.log_every=10",
                             "eval.every=25"}) == "");
}

TEST_CASE("a stop rule that even routers meet is named, whatever its measure") {
  struct Row {
    int64_t experts, top_k, tokens;
    const char* rule;
    const char* said;  // "" = nothing
  };
  const Row rows[] = {
      // Even loads of 2 of 4 experts are 0.5 of the ceiling.
      {4, 2, 1024, "measure: max_load_norm, at_least: 0.5, for: 2",
       "a step gives each expert 512 "},
      {4, 2, 1024, "measure: max_load_norm, at_least: 0.6, for: 2", ""},
      {4, 2, 1024, "measure: window_max_load_norm, at_least: 0.5, for: 2", "the window gives each"},
      {400, 1, 128, "measure: max_load_norm, at_least: 0.02, for: 2", "makes max_load_norm 0.02"},
      {400, 1, 128, "measure: cv_norm, at_least: 0.08, for: 2", "makes cv_norm 0.0884 (its"},
      {400, 1, 128, "measure: cv_norm, at_least: 0.1, for: 2", ""},
      {400, 1, 128, "measure: e_eff_norm, at_most: 0.7, for: 2", "makes e_eff_norm 0.26 (its"},
      {400, 1, 128, "measure: e_eff_norm, at_most: 0.2, for: 2", ""},
      {400, 1, 128, "measure: participation_norm, at_most: 0.5", "makes participation_norm 0.243 "},
      {400, 1, 128, "measure: participation_norm, at_most: 0.2", ""},
      // The window grows: 0.775 at one step, 0.860 at two, 0.901 at three, 0.98 at twenty.
      {400, 1, 128, "measure: window_entropy_norm, at_most: 0.9, for: 2",
       "the window of the first 2 logged steps gives each expert 0.64 assignments, and sampling"},
      {400, 1, 128, "measure: window_entropy_norm, at_most: 0.85, for: 1",
       "the window of the first logged step gives each expert 0.32 assignments"},
      {400, 1, 128, "measure: window_entropy_norm, at_most: 0.85, for: 2", ""},
      {400, 1, 128, "measure: window_entropy_norm, at_most: 0.91, for: 2, from: 0.02",
       "the window of the first 3 logged steps gives each"},
      {400, 1, 128, "measure: window_entropy_norm, at_most: 0.91, for: 2, from: 0.1", ""},
      {400, 1, 128, "measure: window_participation_norm, at_most: 0.5, for: 2",
       "the window of the first 2 logged steps gives each"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.experts, row.rule);
    const std::string all =
        warnings_of(kMoe, {strprintf("model.moe.experts=%ld", long(row.experts)),
                           strprintf("model.moe.top_k=%ld", long(row.top_k)),
                           strprintf("run.batch_tokens=%ld", long(row.tokens)), "run.sequence=128",
                           "run.micro_batch=1", "telemetry.window=20", "run.log_every=1",
                           "model.moe.router.normalize_gates=false",
                           strprintf("telemetry.collapse_stop={%s}", row.rule)});
    CAPTURE(all);
    REQUIRE(all.find(row.said) != std::string::npos);
    if (*row.said == 0) REQUIRE(all.find("collapse_stop") == std::string::npos);
  }
  for (const std::string& measure : collapse_measures()) {  // each is known
    CAPTURE(measure);
    REQUIRE(warnings_of(kMoe, {"telemetry.collapse_stop={measure: " + measure + ", at_least: 0}"})
                .find("then makes " + measure + " ") != std::string::npos);
  }
}

TEST_CASE("idle experts are a matter of Muon alone") {
  const std::vector<std::string> unbalanced{"model.moe.router.aux=none",
                                            "model.moe.router.bias_rate=0"};
  const std::string lines = warnings_of(kMoe, unbalanced);
  REQUIRE(lines.find("the routers are not balanced") != std::string::npos);
  REQUIRE(lines.find("muon") == std::string::npos);
}

TEST_CASE("threads are compared with the cores of this process, which is one of several perhaps") {
  const Config config = parse_config_text("run: {steps: 100, threads: 4}\n", "test", ".", {});
  const auto warnings = [&](int64_t cores, int64_t processes) {
    return training_warnings(config, {}, {.cores = cores, .processes = processes});
  };
  using Lines = std::vector<std::string>;
  REQUIRE(warnings(4, 1).empty());
  REQUIRE(warnings(4, 2).empty());
  REQUIRE(warnings(3, 1) == Lines{"run.threads = 4 on 3 cores: this is slower than 3 threads"});
  REQUIRE(warnings(3, 2) ==
          Lines{"run.threads = 4 and 3 cores for each process: this is slower than 3 threads"});
  REQUIRE(warnings(1, 1) == Lines{"run.threads = 4 on 1 core: this is slower than 1 thread"});
  REQUIRE(warnings(1, 2) ==
          Lines{"run.threads = 4 and 1 core for each process: this is slower than 1 thread"});
  const Config all = parse_config_text("run: {steps: 100, threads: 0}\n", "test", ".", {});
  REQUIRE(training_warnings(all, {}, {.cores = 1}).empty());
}

TEST_CASE("a run that will log too few steps for a verdict on its routers says so") {
  const auto said = [](const char* text, const std::vector<std::string>& sets) {
    return too_few_for_a_verdict(parse_config_text(text, "test", ".", sets));
  };
  REQUIRE(said(kMoe, {}) == "");  // 100 steps, telemetry.window 100
  REQUIRE(said(kMoe, {"run.steps=60"}) ==
          "the routers will be too early to judge: a verdict needs telemetry.window = 100 logged "
          "steps, and the run logs at most 60 (--set telemetry.window=60; not once it has begun)");
  REQUIRE(said(kMoe, {"run.steps=60", "telemetry.window=60"}) == "");
  REQUIRE(said(kMoe, {"run.log_every=2"}).find("at most 50 ") != std::string::npos);
  REQUIRE(said(kDense, {"run.steps=60"}) == "");
}

TEST_CASE("what an included file holds is named where the command or its own file gives it") {
  TempFolder folder;
  const std::string shared = folder / "shared.yaml", own = folder / "own.yaml";
  write_file_atomic(shared, "contract: {coefficient: 20}\n" + std::string(kDense));
  write_file_atomic(own, "include: shared.yaml\nschedule: {floor: 0.1}\n");
  for (const std::string& file : {shared, own}) {
    const auto is_given = [&](const std::string& field) { return names_field(file, field); };
    const std::vector<std::string> lines = training_warnings(load_config(file), is_given);
    REQUIRE(lines.size() == 1);
    REQUIRE(lines[0].starts_with(file == own ? "schedule.floor = 0.1 is"
                                             : "contract.coefficient = 20 is"));
    REQUIRE(training_warnings(load_config(file)).empty());
  }
}

TEST_CASE("no preset has a setting that nothing uses") {
  const std::vector<std::string> presets =
      expand_files({"models/presets/*/*.yaml", "models/presets/*/*/*.yaml"}, "presets");
  for (const std::string& preset : presets) {
    Config config;
    try {
      config = load_config(preset);
    } catch (const UserError&) {  // a matrix
      continue;
    }
    const auto is_given = [&](const std::string& field) {
      return preset.find("/family/") == std::string::npos && names_field(preset, field);
    };
    for (const std::string& line : training_warnings(config, is_given)) {
      CAPTURE(preset, line);
      REQUIRE(line.find("is not used") == std::string::npos);
      REQUIRE(line.find("can never stop") == std::string::npos);
    }
  }
}

}  // namespace

}  // namespace assay::test_training_warnings
