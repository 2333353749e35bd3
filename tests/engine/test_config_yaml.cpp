#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/file.h"
#include "engine/config/check.h"
#include "engine/config/collapse_auto.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_config_yaml {
namespace {

Config parse(const std::string& text, const std::vector<std::string>& sets = {}) {
  return parse_config_text(text, "test.yaml", "/configs", sets);
}

}  // namespace

TEST_CASE("a configuration is read") {
  const Config c = parse(R"(
model:
  hidden: 768
  heads: 12
  tie_embeddings: true
  moe: {experts: 64, top_k: 6, router: {score: softmax, bias_rate: 1e-4}}
optimizer: {lr: 18.0e-4, router_lr: .5}
data: {train: ["a/*.bin", /abs/b.bin], val: val.bin, cache: ""}
run: {steps: 9.536e3}
)");
  REQUIRE(c.model.hidden == 768);
  REQUIRE(c.model.tie_embeddings);
  REQUIRE(c.model.moe);
  REQUIRE(c.model.moe->experts == 64);
  REQUIRE(c.model.moe->shared == 0);
  REQUIRE(c.model.moe->router.score == RouterScore::kSoftmax);
  REQUIRE(c.model.moe->router.bias_rate == 1e-4);
  REQUIRE(c.optimizer.lr == 0.0018);
  REQUIRE(c.optimizer.router_lr == 0.5);
  REQUIRE(!c.optimizer.expert_lr);
  REQUIRE(c.data.train == std::vector<std::string>{"/configs/a/*.bin", "/abs/b.bin"});
  REQUIRE(c.data.val == std::vector<std::string>{"/configs/val.bin"});
  REQUIRE(c.data.cache.empty());
  REQUIRE(c.run.steps == 9536);
  REQUIRE(!c.contract.landings);
}

TEST_CASE("bias_rate is a number or auto, whose steps are in the run's file") {
  const std::string text = "model: {moe: {router: {bias_rate: auto}}}";
  const Config c = parse(text);
  const RouterConfig& router = c.model.moe->router;
  REQUIRE(router.bias_rate == BiasRate::measured());
  REQUIRE(router.bias_rate.on());
  REQUIRE(router.bias_steps == 100);
  REQUIRE(to_yaml(c).find("bias_rate: auto\n      bias_steps: 100.0\n") != std::string::npos);
  REQUIRE(section_hashes(parse(to_yaml(c))) == section_hashes(c));
  REQUIRE(parse(text, {"model.moe.router.bias_steps=30"}).model.moe->router.bias_steps == 30);
  REQUIRE(!parse(text, {"model.moe.router.bias_rate=0"}).model.moe->router.bias_rate.on());
  REQUIRE(parse(text, {"model.moe.router.bias_rate=2e-3"}).model.moe->router.bias_rate == 0.002);
}

TEST_CASE("an absent optional choice is in no text and no hash") {
  const Config usual = parse("model: {moe: {}}");
  REQUIRE(to_yaml(usual).find("bias_rule") == std::string::npos);
  const Config c = parse("model: {moe: {router: {bias_rule: proportional}}}");
  REQUIRE(c.model.moe->router.resolved_bias_rule() == BiasRule::kProportional);
  REQUIRE(to_yaml(c).find("      bias_rule: proportional\n") != std::string::npos);
  REQUIRE(section_hashes(c) != section_hashes(usual));
  const Config back = parse(to_yaml(c), {"model.moe.router.bias_rule=null"});
  REQUIRE(section_hashes(back).at("model") == section_hashes(usual).at("model"));
}

TEST_CASE("collapse_stop without `from` has the text and hash that it had") {
  const Config c = parse("telemetry: {collapse_stop: {at_least: 0.9}}");
  REQUIRE(to_yaml(c).find("  collapse_stop:\n    measure: max_load_norm\n    at_least: 0.9\n"
                          "    layers: any\n    for: 10\ncontract:") != std::string::npos);
  const Config later = parse(to_yaml(c), {"telemetry.collapse_stop.from=0.25"});
  REQUIRE(later.telemetry.collapse_stop->from == 0.25);
  REQUIRE(to_yaml(later).find("    for: 10\n    from: 0.25\n") != std::string::npos);
  REQUIRE(section_hashes(later) != section_hashes(c));
  const Config back = parse(to_yaml(later), {"telemetry.collapse_stop.from=null"});
  REQUIRE(section_hashes(back) == section_hashes(c));
}

TEST_CASE("collapse_stop: auto is the rule itself") {
  const std::string text = "telemetry: {collapse_stop: auto}\nmodel: {moe: {}}";
  const Config c = parse(text);
  REQUIRE(c.telemetry.collapse_stop == collapse_auto());
  const std::string rule =
      "  collapse_stop:\n    measure: entropy_norm\n    at_most: 0.848\n    layers: mean\n"
      "    for: 10\n    from: 0.1\n";
  REQUIRE(to_yaml(c).find(rule) != std::string::npos);
  REQUIRE(parse(to_yaml(c)).telemetry.collapse_stop == collapse_auto());
  // It takes the place of an earlier rule, and a later field changes it.
  const std::string other = "telemetry: {collapse_stop: {measure: gini, at_least: 0.9}}";
  REQUIRE(parse(other, {"telemetry.collapse_stop=auto"}).telemetry.collapse_stop ==
          collapse_auto());
  const Config changed = parse(text, {"telemetry.collapse_stop.for=3"});
  REQUIRE(changed.telemetry.collapse_stop->logged_steps == 3);
  REQUIRE(changed.telemetry.collapse_stop->from == 0.1);
  REQUIRE(!parse(text, {"telemetry.collapse_stop=null"}).telemetry.collapse_stop);
  REQUIRE(!parse("model: {moe: {}}").telemetry.collapse_stop);  // off by default

  const std::string said = collapse_auto_text(c);
  REQUIRE(
      said.find("collapse_stop: auto is entropy_norm <= 0.848 in the mean over the layers for 10 "
                "logged steps from 10% of the steps on, which on 83 recorded runs had ") == 0);
  REQUIRE(said.find(" of 58 hits and ") != std::string::npos);
  REQUIRE(collapse_auto_text(changed).empty());
  // As every rule, it has no effect in a dense model, and nothing is said of it.
  const Config dense = parse("telemetry: {collapse_stop: auto}");
  REQUIRE(dense.telemetry.collapse_stop == collapse_auto());
  REQUIRE(collapse_auto_text(dense).empty());
}

TEST_CASE("landings are a list of numbers, one, or none") {
  const auto landings = [](const std::string& text) {
    return parse("contract: {landings: " + text + "}").contract.landings;
  };
  REQUIRE(landings("[0.02, 5e-2, 1]") == std::vector<double>{0.02, 0.05, 1});
  REQUIRE(landings("0.5") == std::vector<double>{0.5});
  REQUIRE(landings("[]") == std::vector<double>{});
  REQUIRE(!landings("null"));
  REQUIRE(parse("run: {}", {"contract.landings=[0.1, 1]"}).contract.landings ==
          std::vector<double>{0.1, 1});
}

TEST_CASE("optional sections can be set and removed") {
  REQUIRE(!parse("model: {hidden: 128}").model.moe);
  REQUIRE(parse("model: {moe: {}}").model.moe);
  REQUIRE(!parse("model: {moe: null}").model.moe);
  REQUIRE(!parse("model: {moe: }").model.moe);
  REQUIRE(!parse("model: {moe: {experts: 4}}", {"model.moe=null"}).model.moe);
  REQUIRE(parse("run: {seed: 2}", {"model.moe.experts=16"}).model.moe->experts == 16);
  REQUIRE(!parse("optimizer: {router_lr: 1.0}", {"optimizer.router_lr=null"}).optimizer.router_lr);
}

TEST_CASE("--set takes the same names, checks and number formats as the file") {
  const Config c =
      parse("optimizer: {lr: 1}", {"optimizer.lr=1e-4", "data.val=[a.bin, b.bin]",
                                   "model.qk_norm=true", "run={seed: 7}", "run.steps=20"});
  REQUIRE(c.optimizer.lr == 1e-4);
  REQUIRE(c.data.val[1] == std::filesystem::current_path() / "b.bin");
  REQUIRE(c.model.qk_norm);
  REQUIRE(c.run.seed == 7);
  REQUIRE(c.run.steps == 20);
}

TEST_CASE("includes are read first, and relative to the file that names them") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "family");
  write_file_atomic(folder / "family/base.yaml",
                    "data: {train: t.bin}\nrun: {seed: 3, steps: 11}\n");
  write_file_atomic(folder / "family/more.yaml",
                    "include: base.yaml\nrun: {steps: 12}\nmodel: {moe: {}}\n");
  write_file_atomic(folder / "a.yaml",
                    "model: {moe: null}\ninclude: [family/more.yaml]\nrun: {log_every: 5}\n");
  const Config c = load_config(folder / "a.yaml");
  REQUIRE(c.data.train == std::vector<std::string>{folder / "family/t.bin"});
  REQUIRE(c.data.cache == folder / "data-cache");
  REQUIRE(c.run.seed == 3);
  REQUIRE(c.run.steps == 12);
  REQUIRE(c.run.log_every == 5);
  REQUIRE(!c.model.moe);
}

TEST_CASE("~/ in a path is the home folder") {
  const char* const variable = std::getenv("HOME");
  const std::optional<std::string> home =
      variable == nullptr ? std::nullopt : std::optional<std::string>(variable);
  const TempFolder folder;
  write_file_atomic(folder / "base.yaml", "run: {steps: 7}\n");
  setenv("HOME", folder.path().c_str(), 1);
  REQUIRE(parse("include: ~/base.yaml\n").run.steps == 7);
  setenv("HOME", "/home/of-a-test", 1);
  const Config c = parse(
      "data: {train: [~/text/*.bin, a~/b.bin], cache: ~/.cache/assay, tokenizer: /t~/~/a.json}");
  unsetenv("HOME");
  // As the shell does: what /etc/passwd has.
  const passwd* const user = getpwuid(getuid());
  if (user != nullptr && *user->pw_dir != '\0') {
    REQUIRE(parse("data: {cache: ~/corpora}").data.cache ==
            (std::filesystem::path(user->pw_dir) / "corpora").lexically_normal());
  } else {
    REQUIRE_THROWS_WITH(parse("data: {cache: ~/corpora}"),
                        Catch::Matchers::ContainsSubstring("~/corpora: HOME is not set"));
  }
  if (home) setenv("HOME", home->c_str(), 1);
  REQUIRE(c.data.cache == "/home/of-a-test/.cache/assay");
  REQUIRE(c.data.train ==
          std::vector<std::string>{"/home/of-a-test/text/*.bin", "/configs/a~/b.bin"});
  REQUIRE(c.data.tokenizer == "/t~/~/a.json");
}

TEST_CASE("a resolved configuration reads back equal") {
  Config c = parse(
      "model: {moe: {router: {aux: gates, aux_alpha: 1e-3}}}\ndata: {train: ['a b,c.bin', x.bin]}");
  c.optimizer.lr = 0.1 + 0.2;
  c.optimizer.eps = 1e-30;
  c.model.rope_theta = 1e22;
  c.data.tokenizer = "/odd \"quotes\"\\\n\t.json";
  c.optimizer.expert_beta2 = 0.75;
  c.data.synth = SynthConfig{.seed = 9};
  c.contract.landings = std::vector<double>{0.1, 1};
  c.contract.derived_from = "/a/dense.yaml: 9 steps";
  c.schedule.warmup_fraction = 0.125;
  const std::string text = to_yaml(c);
  const Config back = parse(text);
  REQUIRE(to_yaml(back) == text);
  REQUIRE(back.optimizer.lr == c.optimizer.lr);
  REQUIRE(back.data.tokenizer == c.data.tokenizer);
  REQUIRE(back.data.train == c.data.train);
  REQUIRE(back.contract.landings == c.contract.landings);
  REQUIRE(section_hashes(back) == section_hashes(c));
  const Config defaults;
  REQUIRE(to_yaml(parse(to_yaml(defaults), {"data.cache=" + defaults.data.cache})).size() >=
          to_yaml(defaults).size());
}

TEST_CASE("what the configuration of an older run does not name is as it was then") {
  const std::string old = "run: {steps: 5}\n";
  const TempFolder folder;
  const std::string of_run = folder / "config.yaml";
  write_file_atomic(of_run, old);
  REQUIRE(load_config(of_run).precision.products == ProductsMode::kAuto);
  make_folders(folder / "checkpoints");  // of another program
  write_file_atomic(folder / "checkpoints/x.pt", "x");
  write_file_atomic(folder / "meta.json", R"({"author": "me"})");
  REQUIRE(load_config(of_run).data.shuffle);
  write_file_atomic(folder / "meta.json", R"({"config_sha256": "0"})");  // now it is a run's
  for (const Config& c :
       {load_config(of_run), parse_run_config_text(old, "state.json", folder.path())}) {
    REQUIRE(c.run.steps == 5);
    REQUIRE_FALSE(c.data.shuffle);
    REQUIRE_FALSE(c.eval.at_start);
    REQUIRE(c.precision.products == ProductsMode::kSimulated);
  }
  write_file_atomic(folder / "longer.yaml", "include: config.yaml\nrun: {steps: 9}\n");
  const Config longer = load_config(folder / "longer.yaml", {"eval.at_start=true"});
  REQUIRE(longer.run.steps == 9);
  REQUIRE_FALSE(longer.data.shuffle);
  REQUIRE(longer.eval.at_start);
  REQUIRE(longer.precision.products == ProductsMode::kSimulated);
  write_file_atomic(of_run, "data: {shuffle: true}\n");
  REQUIRE(load_config(folder / "longer.yaml").data.shuffle);
}

TEST_CASE("the help lists every field") {
  const std::string help = help_config();
  for (const char* word :
       {"model.moe.router: ", "bias_rate", "keep_checkpoints", "model.moe (optional)",
        "one of none, switch, gates", "in (0, 1]", "paths", "landings", "warmup_fraction",
        "active-width, activeDN", "in [0, 1)"}) {
    INFO(word);
    REQUIRE(help.find(word) != std::string::npos);
  }
}

TEST_CASE("every preset is valid and reads back equal") {
  const auto is_matrix = [](const std::string& path) {
    return path.find("/matrix") != std::string::npos || path.find("/posts/") != std::string::npos;
  };
  const std::vector<std::string> presets =
      expand_files({"models/presets/*/*.yaml", "models/presets/*/*/*.yaml"}, "presets");
  REQUIRE(presets.size() >= 9);
  for (const std::string& preset : presets) {
    if (is_matrix(preset)) continue;  // tests/run/test_matrix.py
    INFO(preset);
    const Config c = load_config(preset);
    REQUIRE(to_yaml(parse(to_yaml(c))) == to_yaml(c));
    if (!c.data.synth) continue;
    REQUIRE(c.data.cache == std::filesystem::current_path() / "data-cache");
  }
}

TEST_CASE("patterns expand to files") {
  const TempFolder folder;
  for (const char* name : {"b_2.bin", "b_1.bin", "a.bin", "c.txt"})
    write_file_atomic(folder / name, "x");
  REQUIRE(expand_files({folder / "b_*.bin", folder / "a.bin", folder / "*.bin"}, "data.train") ==
          std::vector<std::string>{folder / "a.bin", folder / "b_1.bin", folder / "b_2.bin"});
  REQUIRE_THROWS_WITH(expand_files({folder / "no*.bin"}, "data.val"),
                      Catch::Matchers::ContainsSubstring("no*.bin"));
  // What makes the files of a preset.
  for (const auto& [place, hint] : std::vector<std::pair<const char*, const char*>>{
           {"none", "check the path"},
           {"fineweb10B", "bash tools/get_fineweb.sh"},
           {"debian-corpus", "bash tools/get_debian_text.sh; bash tools/text_corpus.sh "},
           {"super-text", "bash tools/text_corpus.sh FILE data-cache/super-text makes it"}}) {
    INFO(place);
    try {
      expand_files({folder / place + "/corpus_train_*.bin"}, "data.train");
      FAIL("found");
    } catch (const UserError& error) {
      REQUIRE_THAT(error.hint(), Catch::Matchers::StartsWith(hint));
    }
  }
  REQUIRE_THROWS_WITH(expand_files({folder.path()}, "data.val"),
                      Catch::Matchers::ContainsSubstring("is a folder"));
}

TEST_CASE("which field an argument of --set gives") {
  for (const char* set : {"run.steps=7", "run={steps: 7}", "run={seed: 1, steps: 7}"}) {
    INFO(set);
    REQUIRE(gives_field(set, "run.steps"));
  }
  for (const char* set : {"run.seed=7", "run={seed: 7}", "run=7", "run.step=7", "ru={steps: 7}",
                          "run", "run.steps.x=7", "contract.fraction=0.2"}) {
    INFO(set);
    REQUIRE_FALSE(gives_field(set, "run.steps"));
  }
  REQUIRE(gives_field("model={moe: {router: {aux: none}}}", "model.moe.router.aux"));
  REQUIRE(gives_field("model.moe={router: {aux: none}}", "model.moe.router.aux"));
  REQUIRE_FALSE(gives_field("model={moe: null}", "model.moe.router.aux"));
}

}  // namespace assay::test_config_yaml
