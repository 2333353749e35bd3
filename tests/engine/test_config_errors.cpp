// Every error in a configuration is one UserError that names the place, the value and a fix.
#include <filesystem>
#include <random>

#include "base/file.h"
#include "engine/config/check.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_config_errors {
namespace {

struct Row {
  const char* text;
  const char* set;
  const char* error;
  const char* hint;
};

const Row kRows[] = {
    // names
    {"model:\n  hiden: 3", "", "test.yaml:2: unknown key hiden in model", "did you mean hidden?"},
    {"modle: {}", "", "test.yaml:1: unknown key modle at the top level", "did you mean model?"},
    {"run: {kv_head: 3}", "", "unknown key kv_head in run", "did you mean model.kv_heads?"},
    {"model:\n  lr: 1", "", "test.yaml:2: misplaced key lr in model", "optimizer.lr"},
    {"hidden: 3", "", "misplaced key hidden at the top level", "model.hidden"},
    {"model: {experts: 8}", "", "misplaced key experts", "model.moe.experts"},
    {"model: {qqqqqqqq: 8}", "", "unknown key qqqqqqqq", "--help-config"},
    {"optimizer: {learning_rate: 1}", "", "unknown key learning_rate in optimizer",
     "did you mean optimizer.lr?"},
    {"run: {}", "run.batch_size=8", "unknown key batch_size in run", "run.batch_tokens (tokens"},
    {"model: {num_layers: 8}", "", "unknown key num_layers in model", "did you mean model.layers?"},
    {"run: {batch_tokens: 1024, sequence: 64, micro_batch: 8}\nparallel: {parts: 4}", "",
     "parallel.parts = 4 does not divide the 2 micro-batches", "1, 2, or --set run.micro_batch=4"},
    {"run:\n  seed: 1\n  seed: 2", "", "test.yaml:3: duplicate key run.seed", "keep one"},
    {"run: {}\nrun: {}", "", "test.yaml:2: duplicate key run", "keep one"},
    {"[a]: 3", "", "a key is a list", "--help-config"},
    // types
    {"run:\n  steps: many", "", "test.yaml:2: run.steps is \"many\", not an integer",
     "--help-config"},
    {"run: {steps: 1.5}", "", "run.steps = 1.5 is not an integer", ""},
    {"run: {steps: \"10\"}", "", "run.steps is \"10\", not an integer", ""},
    {"run: {steps: 010}", "", "run.steps = 010 starts with a zero", ""},
    {"run: {steps: 0x10}", "", "run.steps is \"0x10\"", ""},
    {"run: {steps: 1e300}", "", "run.steps = 1e300 is beyond 10^15", ""},
    {"run: {steps: [1]}", "", "run.steps is a list", ""},
    {"run: {steps: }", "", "run.steps is null", ""},
    {"run: {steps: {a: 1}}", "", "run.steps is a section", ""},
    {"run: 3", "", "run is \"3\", not a section", ""},
    {"run: ", "", "run is null, not a section", ""},
    {"model: {qk_norm: yes}", "", "model.qk_norm is \"yes\", not true or false", ""},
    {"model: {qk_norm: 1}", "", "model.qk_norm is \"1\", not true or false", ""},
    {"optimizer: {lr: 1e-3x}", "", "optimizer.lr is \"1e-3x\", not a number", ""},
    {"model: {logit_gain: 1e-300}", "", "model.logit_gain = 1e-300 is 0 in float", "1.2e-38"},
    {"model: {norm_eps: 1e-45}", "", "model.norm_eps = 1e-45 is 0 in float", ""},
    {"model: {embed_gain: 1e300}", "", "model.embed_gain = 1e300 is infinite in float", "3.4e38"},
    {"optimizer: {weight_decay: 1e-50}", "", "is 0 in float", "of at least 1.2e-38, or 0; "},
    // 0 is no way out where it is refused too.
    {"model: {moe: {router: {route_scale: 1e-50}}}", "", "route_scale = 1e-50 is 0 in float",
     "of at least 1.2e-38; "},
    {"model: {moe: {router: {bias_steps: 1e-50}}}", "", "bias_steps = 1e-50 is 0 in float",
     "of at least 1; "},
    {"data: {mixture: [1e-300]}", "", "data.mixture = 1e-300 is 0 in float", ""},
    {"optimizer: {lr: 1e-999}", "", "optimizer.lr = 1e-999 does not fit", ""},
    {"data: {tokenizer: [a]}", "", "data.tokenizer is a list, not a string", ""},
    {"data: {val: }", "", "data.val is null; expected a list of paths", "e.g. val: [shards/*.bin]"},
    {"data: {train: [a.bin, \"b\\0.bin\"]}", "", "data.train has a path with a zero byte in it",
     "no file has such a name: write it without \\0"},
    {"data: {tokenizer: \"b\\0.json\"}", "", "data.tokenizer has a path with a zero byte in it",
     "no file has such a name: write it without \\0"},
    {"data: {train: {a: b}}", "", "data.train is a section, not a list", ""},
    {"data: {train: [[a]]}", "", "data.train has an item that is a list", ""},
    {"data: {mixture: [web]}", "", "data.mixture is \"web\", not a number", ""},
    {"data: {mixture: [0.7, 0]}", "", "data.mixture = 0.0 is out of range", "> 0"},
    {"data: {mixture: {a: 1}}", "", "data.mixture is a section, not a list of numbers", ""},
    // ranges
    {"optimizer: {lr: .nan}", "", "optimizer.lr = .nan is not a finite number", ""},
    {"optimizer: {lr: nan}", "", "optimizer.lr = nan is not a finite number", ""},
    {"optimizer: {lr: -.inf}", "", "optimizer.lr = -.inf is not a finite number", ""},
    {"optimizer: {lr: -1}", "", "optimizer.lr = -1.0 is out of range", "> 0"},
    {"optimizer: {lr: 0}", "", "optimizer.lr = 0.0 is out of range", "> 0"},
    {"optimizer: {router_lr: -1}", "", "optimizer.router_lr = -1.0 is out of range", "> 0"},
    {"optimizer: {beta2: 1}", "", "optimizer.beta2 = 1.0 is out of range", "in [0, "},
    {"run: {steps: 0}", "", "run.steps = 0 is out of range", "optimizer steps: >= 1"},
    {"run: {steps: -5}", "", "run.steps = -5 is out of range", ""},
    {"model: {moe: {router: {bias_rate: Auto}}}", "",
     "model.moe.router.bias_rate is \"Auto\", not a number", "or auto"},
    {"model: {moe: {router: {bias_rate: \"auto\"}}}", "",
     "model.moe.router.bias_rate is \"auto\", not a number or auto", "--help-config"},
    {"model: {moe: {router: {bias_rate: -1}}}", "",
     "model.moe.router.bias_rate = -1.0 is out of range", ">= 0"},
    {"model: {moe: {router: {bias_steps: 0}}}", "",
     "model.moe.router.bias_steps = 0.0 is out of range", ">= 1"},
    {"model: {moe: {router: {bias_rule: signs}}}", "",
     "model.moe.router.bias_rule = signs is not a choice", "one of sign, proportional"},
    {"model: {moe: {router: {bias_rate: auto, bias_rule: proportional}}}", "",
     "bias_rate = auto with bias_rule = proportional", "bias_rule=sign"},
    {"model: {moe: {top_k: 65}}", "", "model.moe.top_k = 65 is out of range", "in [1, 64]"},
    {"model: {moe: {router: {aux: swich}}}", "", "model.moe.router.aux = swich is not a choice",
     "one of none, switch, gates"},
    {"precision: {recipe: fp8}", "", "precision.recipe = fp8 is not a choice", "auto, fp32, bf16"},
    // fields together
    {"model: {moe: {top_k: 9}}", "", "model.moe.top_k = 9 is more than model.moe.experts = 8",
     "once"},
    {"model: {heads: 3}", "", "model.heads = 3 does not divide model.hidden = 256", "divisor"},
    {"model: {heads: 16}", "", "256 / 16 = 16 is not 32, 64 or 128", "model.head_dim"},
    {"model: {head_dim: 80}", "", "model.head_dim = 80 is not 32, 64 or 128", ""},
    {"model: {kv_heads: 3}", "", "model.kv_heads = 3 does not divide model.heads = 4", ""},
    {"model: {moe: {first_dense_layers: 5}}", "",
     "first_dense_layers = 5 is more than model.layers = 4", ""},
    {"run: {batch_tokens: 8191}", "", "run.batch_tokens = 8191 is not a multiple", "256 * 8"},
    {"run: {batch_tokens: 1024}", "", "run.batch_tokens = 1024 is not a multiple", ""},
    {"run: {sequence: 1e15, micro_batch: 1e15}", "", "is not a multiple", ""},
    {"run: {steps: 1000000000000000, batch_tokens: 16384}", "",
     "1000000000000000 * 16384 tokens does not fit 63 bits", "make one of them smaller"},
    {"schedule: {warmup: 600, warmdown: 600}", "", "= 600 + 600 is more than run.steps = 1000",
     "--set schedule.warmup=250 --set schedule.warmdown=250"},
    {"schedule: {decay: cosine, floor: 1}", "", "schedule.floor = 1 is above optimizer.lr = 0.001",
     ""},
    {"contract: {kind: activeDN}", "", "contract.coefficient is not given", "activeDN"},
    {"eval: {tokens: 100}", "", "eval.tokens = 100 is less than run.sequence = 256", ""},
    {"data: {synth: {vocab_size: 9000}}", "",
     "data.synth.vocab_size = 9000 is more than model.vocab_size = 8192", ""},
    // the file itself
    {"", "", "test.yaml: the configuration is empty", "models/presets"},
    {"- a", "", "the configuration is a list", ""},
    {"model: {hidden: 3", "", "test.yaml:1: not YAML", "indentation"},
    {"model:\n\thidden: 3", "", "not YAML", ""},
    {"run: {}\n---\nrun: {}", "", "several YAML documents", "keep one"},
    {", run: {}", "", "several YAML documents", "a line that begins with a comma"},
    {"- a\n, b", "", "several YAML documents", ""},
    {"run: {}\ninclude: gone.yaml", "",
     "test.yaml:2: included file /configs/gone.yaml does not exist", "test.yaml"},
    {"include: {a: b}", "", "include is a section", ""},
    {"include: [[a]]", "", "include names a list", ""},
    // --set
    {"run: {}", "run.stpes=3", "--set run.stpes=3: unknown key stpes in run",
     "did you mean steps?"},
    {"run: {}", "run.steps=x", "--set run.steps=x: run.steps is \"x\"", ""},
    {"run: {}", "run.steps=0", "--set run.steps=0: run.steps = 0 is out of range", ""},
    {"run: {}", "run.steps", "--set run.steps: is not of the form", "section.field=value"},
    {"run: {}", "=3", "is not of the form", ""},
    {"run: {}", "steps=3", "misplaced key steps", "run.steps"},
    {"run: {}", "run..steps=3", "unknown key  in run", ""},
    {"run: {}", "run.steps=[", "not YAML", ""},
    {"run: {}", "run.steps.more=3", "run.steps is a section, not an integer", ""},
    {"run: {}", "include=a.yaml", "unknown key include", ""},
};

const Row kContractRows[] = {
    {"contract: {kind: totalDN}", "",
     "contract.kind is totalDN but contract.coefficient is not given", "coefficient: 20"},
    {"contract: {kind: flops}", "", "contract.coefficient is not given", "kind: flops"},
    {"contract: {kind: seconds}", "", "contract.coefficient is not given", "kind: seconds"},
    {"contract: {kind: active-width}", "", "contract.coefficient is not given",
     "kind: active-width"},
    {"contract: {kind: chinchilla}", "", "contract.kind = chinchilla is not a choice",
     "totalDN, flops, seconds"},
    {"contract: {kind: flops, coefficient: 9, reference: a.yaml}", "",
     "coefficient = 9 and contract.reference = /configs/a.yaml", "remove one"},
    {"contract: {coefficient: 9, reference: a.yaml}", "",
     "coefficient = 9 and contract.reference = /configs/a.yaml", "remove one"},
    {"contract: {kind: flops, coefficient: 9, horizon: 5}", "",
     "contract.horizon = 5, but the contract flops has its own", "remove it"},
    {"contract: {fraction: 1.5}", "", "contract.fraction = 1.5 is out of range", "in (0, 1]"},
    {"contract: {landings: [0.1, 1.5]}", "", "contract.landings = 1.5 is out of range",
     "in (0, 1]"},
    {"contract: {landings: [0]}", "", "contract.landings = 0.0 is out of range", "in (0, 1]"},
    {"contract: {landings: [a]}", "", "contract.landings is \"a\", not a number", ""},
    {"contract: {landings: [[1]]}", "", "contract.landings has a list, not a number", ""},
    {"contract: {landings: {a: 1}}", "", "contract.landings is a section, not a list", ""},
    {"contract: {fraction: 0.2, landings: [0.5]}", "",
     "landings has 0.5, but the run ends at contract.fraction = 0.2", "train further"},
    {"schedule: {warmup: 3, warmup_fraction: 0.1}", "",
     "warmup = 3 and schedule.warmup_fraction = 0.1 are both given", "remove one"},
    {"schedule: {warmdown: 3, warmdown_fraction: 0}", "",
     "schedule.warmdown_fraction = 0 are both given", "remove one"},
    {"schedule: {warmup_fraction: 0.5, warmdown_fraction: 0.6}", "",
     "= 1.1 is more than the whole run", "shorten"},
    {"schedule: {warmup: 600, warmdown_fraction: 0.5}", "",
     "= 600 + 500 is more than run.steps = 1000", ""},
    {"schedule: {warmup_fraction: 2}", "", "schedule.warmup_fraction = 2.0 is out of range",
     "in [0, 1]"},
    {"optimizer: {state: bf16}\nprecision: {recipe: fp32}", "",
     "optimizer.state is bf16, but precision.recipe is fp32", "precision.recipe: bf16"},
    {"optimizer: {state: fp16}", "", "optimizer.state", ""},
    {"optimizer: {muon: {momentum: 0.9}}", "",
     "optimizer.muon is given, but optimizer.kind is adamw", "choose optimizer.kind: muon"},
    {"optimizer: {kind: muon, state: bf16}", "",
     "optimizer.kind is muon, but optimizer.state is bf16", "optimizer.state: fp32"},
    {"optimizer: {kind: muon, muon: {steps: 0}}", "", "optimizer.muon.steps = 0", "in [1, 20]"},
    {"optimizer: {kind: muon, muon: {momentum: 1}}", "", "optimizer.muon.momentum = 1", ""},
    {"optimizer: {kind: muon, muon: {adjust: none}}", "", "optimizer.muon.adjust",
     "match_rms_adamw"},
};

// The section telemetry.collapse_stop, the expected error and the expected hint.
const Row kCollapseRows[] = {
    {"{measure: max_load, at_least: 0.9}", "", "collapse_stop.measure = max_load is not a choice",
     "max_load_norm"},
    {"{measure: gate_entropy_norm, at_most: 0.1}", "", "is not a choice",
     "one of cv_norm, max_load_norm"},
    {"{measure: entropy_norm}", "", "no bound on entropy_norm: neither at_least nor at_most",
     "at_least: 0.9"},
    {"{}", "", "no bound on max_load_norm", "collapse_stop: null turns it off"},
    {"{at_least: 0.9, at_most: 0.1}", "", "at_least = 0.9 and at_most = 0.1",
     "remove the other one"},
    {"{at_least: 90}", "", "collapse_stop.at_least = 90.0 is out of range", "in [0, 1]"},
    {"{at_least: 0.9, for: 0}", "", "collapse_stop.for = 0 is out of range",
     "consecutive logged steps"},
    {"{at_least: 0.9, layers: 2}", "", "collapse_stop.layers = \"2\" is not a choice",
     "any, all, mean"},
    {"{above: 0.9}", "", "unknown key above in telemetry.collapse_stop", "--help-config"},
    {"0.9", "", "telemetry.collapse_stop is \"0.9\", not a section", ""},
    {"{at_least: 0.9, from: 1}", "", "collapse_stop.from = 1.0 is out of range", "in [0, 1)"},
    {"{at_least: 0.9, from: -0.1}", "", "collapse_stop.from = -0.1 is out of range", "run.steps"},
    {"{at_least: 0.9, from: auto}", "", "collapse_stop.from is \"auto\", not a number", ""},
    {"{from: 0.1}", "", "no bound on max_load_norm", ""},
    {"aut0", "", "test.yaml:2: telemetry.collapse_stop is \"aut0\", not a section or auto",
     "did you mean auto?"},
    {"[auto]", "", "telemetry.collapse_stop is a list, not a section", ""},
    {"auto", "telemetry.collapse_stop.at_least=0.9", "at_least = 0.9 and at_most = 0.848", ""},
    {"auto\nmodel: {moe: {experts: 4, top_k: 4}}", "", "all 4 experts are in every token's choice",
     "null"},
    {"{at_least: 0.9}\nmodel: {moe: {experts: 4, top_k: 4}}", "",
     "all 4 experts are in every token's choice", "null"},
};

void expect_refused(const Row& row) {
  INFO("text: " << row.text << "  --set " << row.set);
  std::vector<std::string> sets;
  if (row.set[0] != 0) sets.push_back(row.set);
  try {
    parse_config_text(row.text, "test.yaml", "/configs", sets);
    FAIL("was accepted");
  } catch (const UserError& error) {
    REQUIRE_THAT(error.what() + (" | " + error.hint()),
                 Catch::Matchers::ContainsSubstring(row.error));
    REQUIRE_THAT(error.what() + (" | " + error.hint()),
                 Catch::Matchers::ContainsSubstring(row.hint));
    REQUIRE(!error.hint().empty());
  }
}

}  // namespace

TEST_CASE("bad configurations are refused by name, line and value") {
  for (const Row& row : kRows) expect_refused(row);
  for (const Row& row : kContractRows) expect_refused(row);
  for (const Row& row : kCollapseRows) {
    const std::string text = std::string("telemetry:\n  collapse_stop: ") + row.text;
    expect_refused({text.c_str(), row.set, row.error, row.hint});
  }
}

TEST_CASE("missing files, folders and include cycles") {
  const TempFolder folder;
  REQUIRE_THROWS_WITH(load_config(folder / "none.yaml"),
                      Catch::Matchers::ContainsSubstring("none.yaml"));
  REQUIRE_THROWS_AS(load_config(folder.path()), UserError);
  write_file_atomic(folder / "a.yaml", "include: b.yaml\n");
  write_file_atomic(
      folder / "b.yaml",
      "include: ../" + std::filesystem::path(folder.path()).filename().string() + "/a.yaml\n");
  REQUIRE_THROWS_WITH(load_config(folder / "a.yaml"), Catch::Matchers::ContainsSubstring("cycle"));
}

TEST_CASE("a path that is not UTF-8 is refused, since config.yaml could not name it") {
  const std::string folder = "/d\xe9";
  const auto refused = [&](const std::string& text, const std::string& error) {
    const Config config = parse_config_text(text, "test.yaml", folder);  // to read it is no harm
    REQUIRE_THROWS_WITH(validate_data(config), Catch::Matchers::StartsWith(error));
  };
  refused("data: {train: [/a.bin], val: [/b.bin], tokenizer: a.json}",
          "data.tokenizer = \"/d\xe9/a.json\" is not UTF-8: ");
  refused("data: {train: [/a.bin, b.bin], val: [/b.bin]}",
          "data.train = [/a.bin, \"/d\xe9/b.bin\"]");
  refused("data: {synth: {}}", "data.cache = \"/d\xe9/data-cache\" is not UTF-8: ");
  const Config c = parse_config_text("data: {synth: {}, cache: /c\u00e9}", "test.yaml", folder);
  validate_data(c);
  REQUIRE(c.data.cache == "/c\u00e9");
  REQUIRE(to_yaml(parse_config_text(to_yaml(c), "test.yaml", folder)) == to_yaml(c));
  validate_data(parse_config_text("data: {train: [/a.bin], val: [/b.bin]}", "test.yaml", folder));
}

TEST_CASE("text that is not UTF-8 is refused in what the user gives, not in what a run recorded") {
  const TempFolder folder;
  const std::string text = "# \u00e9\neval: {samples: {prompts: [\"caf\xe9\"]}}\n";
  write_file_atomic(folder / "latin.yaml", text);
  write_file_atomic(folder / "outer.yaml", "include: latin.yaml\n");
  for (const std::string name : {"latin.yaml", "outer.yaml"}) {
    REQUIRE_THROWS_WITH(load_config(folder / name),
                        Catch::Matchers::EndsWith("latin.yaml:2: is not UTF-8: byte 0xe9"));
  }
  write_file_atomic(folder / "good.yaml", "run: {seed: 2}\n");
  const std::string set = "eval.samples={prompts: [\"caf\xe9\"]}";
  REQUIRE_THROWS_WITH(load_config(folder / "good.yaml", {set}),
                      Catch::Matchers::EndsWith(": is not UTF-8: byte 0xe9"));
  REQUIRE_THROWS_AS(require_utf8_sets({set}), UserError);
  write_file_atomic(folder / "config.yaml", text);
  write_file_atomic(folder / "meta.json", R"({"config_sha256": "0"})");
  REQUIRE(load_config(folder / "config.yaml").eval.samples->prompts[0] == "caf\xe9");
  REQUIRE(parse_run_config_text(text, "t", "/").eval.samples->prompts[0] == "caf\xe9");
}

TEST_CASE("ranks that do not fit are refused with what fits") {
  const auto refused = [](const Config& c, int64_t ranks, const std::string& what,
                          const std::string& hint) {
    INFO(what);
    try {
      require_ranks(c, ranks);
      FAIL("was accepted");
    } catch (const UserError& error) {
      REQUIRE_THAT(error.what(), Catch::Matchers::StartsWith(what));
      REQUIRE(error.hint() == hint);
    }
  };
  Config c;  // one micro-batch of 16 sequences, as models/presets/family/cpu.yaml
  c.run.batch_tokens = 4096;
  c.run.sequence = 256;
  c.run.micro_batch = 16;
  refused(c, 2, "2 ranks do not divide the 1 micro-batch of a step",
          "start one rank, or --set run.micro_batch=8");
  refused(c, 8, "8 ranks", "start one rank, or --set run.micro_batch=2");
  refused(c, 3, "3 ranks", "start one rank, or choose another run.batch_tokens");
  c.parallel.parts = 1;
  refused(c, 2, "2 ranks cannot share the 1 part of a batch",
          "start one rank; a new run may have more parts: --set parallel.parts=2 --set "
          "run.micro_batch=8");
  refused(c, 3, "3 ranks cannot share", "start one rank");
  c.run.micro_batch = 4;
  refused(c, 2, "2 ranks cannot share",
          "start one rank; a new run may have more parts: --set parallel.parts=2");
  c.run.micro_batch = 8;
  c.parallel.parts = 2;
  require_ranks(c, 2);
  // As many micro-batches as a configuration may have: the list ends, and is made for errors only.
  c.parallel.parts = 0;
  c.run = {.batch_tokens = 2'000'000'000'000, .sequence = 1, .micro_batch = 1};
  require_ranks(c, 2);
  REQUIRE_THROWS_AS(require_ranks(c, 3), UserError);
}

TEST_CASE("training needs data") {
  Config c;
  REQUIRE_THROWS_WITH(validate_data(c),
                      Catch::Matchers::ContainsSubstring("data.train is not given"));
  c.data.train = {"a.bin"};
  REQUIRE_THROWS_WITH(validate_data(c),
                      Catch::Matchers::ContainsSubstring("data.val is not given"));
  c.data.val = {"b.bin"};
  validate_data(c);
  c.data.mixture = {0.7, 0.3};
  REQUIRE_THROWS_WITH(
      validate_data(c),
      Catch::Matchers::ContainsSubstring("data.mixture has 2 weights, data.train has 1 entries"));
  c.data.train.push_back("c.bin");
  validate_data(c);
  c.data.synth.emplace();
  REQUIRE_THROWS_WITH(validate_data(c), Catch::Matchers::ContainsSubstring("both"));
  c.data.train.clear();
  REQUIRE_THROWS_WITH(validate_data(c), Catch::Matchers::ContainsSubstring(
                                            "data.mixture and data.synth are both given"));
}

TEST_CASE("damaged text is read or refused without a crash") {
  const std::string good = to_yaml(Config{}) + "include: none.yaml\n";
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, random() % 20);
      if (!text.empty()) text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    try {
      parse_config_text(text, "fuzz.yaml", "/configs");
    } catch (const UserError&) {
    }
  }
}

TEST_CASE("a configuration made in code has the ranges of its fields") {
  validate_ranges(Config());
  const auto refused = [](void (*change)(Config&), const std::string& what) {
    Config c;
    c.model.moe.emplace();
    change(c);
    try {
      validate_ranges(c);
      FAIL("accepted: " << what);
    } catch (const UserError& error) {
      REQUIRE(std::string(error.what()) == what);
      REQUIRE(!error.hint().empty());
    }
  };
  refused([](Config& c) { c.run.log_every = 0; }, "run.log_every = 0 is out of range");
  refused([](Config& c) { c.run.keep_checkpoints = 0; },
          "run.keep_checkpoints = 0 is out of range");
  refused([](Config& c) { c.model.moe->top_k = 65; }, "model.moe.top_k = 65 is out of range");
  refused([](Config& c) { c.precision.recipe = "fp2"; }, "precision.recipe = fp2 is not a choice");
  refused(
      [](Config& c) {
        c.contract.landings = {0.5, 2.0};
      },
      "contract.landings = 2.0 is out of range");
}

}  // namespace assay::test_config_errors
