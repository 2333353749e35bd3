// What compared runs differ in beside what they are compared for.
#include <filesystem>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "lab/compare/compare_report.h"
#include "lab/runs/confounds.h"
#include "lab/runs/passes.h"
#include "tests/catch.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/compared_runs.h"
#include "tests/lab/fake_run.h"

namespace assay::test_confounds {
namespace {

using compared_runs::run_of;
using compared_runs::two_models;

std::vector<Confound> of(const std::vector<RunRecord>& runs) {
  return compare(runs, {}).confounds;
}

}  // namespace

TEST_CASE("two models that differ in precision alone are said to, in every form of the answer") {
  std::vector<RunRecord> runs = two_models();
  REQUIRE(of(runs).empty());
  for (const size_t i : {0, 1}) runs[i].config.precision.recipe = "bf16";
  for (const size_t i : {2, 3}) runs[i].config.precision.recipe = "fp32";
  const Comparison c = compare(runs, {});
  REQUIRE(c.confounds.size() == 1);
  REQUIRE(c.confounds[0].name == "precision");
  const std::string text = "precision.recipe differs: dense bf16, moe fp32";
  REQUIRE(c.confounds[0].text == text);
  REQUIRE(comparison_sentence(c).ends_with(
      "Held fixed: steps: 100 steps of 1,000 tokens. They also differ in precision."));
  REQUIRE(comparison_text(c).find("\nconfound: " + text + "\n") != std::string::npos);
  REQUIRE(comparison_json(c)["confounds"][0]["text"] == text);
}

TEST_CASE("precision is compared as the machine resolved it") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.recipe = "fp32";
  for (const size_t i : {0, 1}) runs[i].recipe = "bf16";
  REQUIRE(of(runs).at(0).text == "precision.recipe differs: dense bf16, moe fp32");
  for (RunRecord& run : runs) run.config.precision.recipe = "bf16";
  // Nothing is quantised: how quantised products are made is no difference.
  runs[0].config.precision.products = runs[1].config.precision.products = ProductsMode::kNative;
  REQUIRE(of(runs).empty());
  for (RunRecord& run : runs) run.config.precision.recipe = "mxfp8";
  REQUIRE(of(runs).size() == 1);
}

TEST_CASE("fields of one kind share a line, which names three of them") {
  std::vector<RunRecord> runs = two_models();
  for (const size_t i : {2, 3}) {
    runs[i].config.optimizer.lr = 0.002;
    runs[i].config.optimizer.expert_lr = 0.002;  // the common rate: no difference
    runs[i].config.optimizer.beta1 = 0.8;
  }
  std::vector<Confound> found = of(runs);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].text ==
          "optimizer.lr differs: dense 0.001, moe 0.002; optimizer.beta1 differs: "
          "dense 0.9, moe 0.8");
  for (const size_t i : {2, 3}) {
    runs[i].config.optimizer.clip = 2;
    runs[i].config.optimizer.weight_decay = 0.5;
    runs[i].config.data.shuffle = false;
  }
  found = of(runs);
  REQUIRE(found.size() == 2);
  REQUIRE(found[0].text.ends_with(" (and 1 more)"));
  REQUIRE(confounds_sentence(found) == "They also differ in optimizer, data order.");
}

TEST_CASE("routed experts with a second moment of their own are said to be stepped otherwise") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) run.config.optimizer.expert_beta2 = 0.99;
  REQUIRE(of(runs).empty());  // no experts
  for (const size_t i : {2, 3}) {
    MoeConfig& moe = runs[i].config.model.moe.emplace();
    moe.experts = 8, moe.top_k = 2, moe.expert_ffn = 99;
    moe.router.gate_scale = 2;
  }
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs)[0].text.starts_with(
      "decay of the second moment of the FFN differs: dense 0.95, moe 0.99; "));
  REQUIRE(confounds_sentence(of(runs)) == "They also differ in ffn optimizer.");
}

TEST_CASE("what a contract or a mixture changes is no confound") {
  std::vector<RunRecord> runs = two_models();
  for (const size_t i : {2, 3}) {
    MoeConfig& moe = runs[i].config.model.moe.emplace();
    moe.experts = 8, moe.top_k = 2, moe.expert_ffn = 99;
    moe.router.gate_scale = 2;
    runs[i].config.run.steps = 123;
    runs[i].config.contract.kind = ContractKind::kTotalDN;
    runs[i].config.contract.coefficient = 20;
    // Shares of the steps, rounded up.
    runs[i].config.schedule.warmup = 13, runs[i].config.schedule.warmdown = 37;
  }
  for (const size_t i : {0, 1}) {
    runs[i].config.schedule.warmup_fraction = 0.1, runs[i].config.schedule.warmdown_fraction = 0.3;
  }
  REQUIRE(of(runs).empty());
  for (const size_t i : {2, 3}) runs[i].config.schedule.warmdown = 60;
  REQUIRE(of(runs).at(0).text == "schedule.warmdown differs: dense 30, moe 60");
  for (const size_t i : {2, 3}) runs[i].config.schedule.warmdown = 30;  // as many steps
  for (const size_t i : {2, 3}) {
    runs[i].config.run.steps = 115;
    runs[i].config.schedule.warmup = 12;
  }
  REQUIRE(of(runs).empty());
}

TEST_CASE("a warm-down of as many steps is another part of a run of another length") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.schedule = {.warmup = 5, .warmdown = 15};
    runs[i].config.run.steps = i < 2 ? 20 : 93;
    runs[i].config.contract.kind = ContractKind::kTotalDN;
    runs[i].config.contract.coefficient = 1;
  }
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs)[0].name == "schedule");
  REQUIRE(of(runs)[0].text == "share of the warm-down in the steps differs: dense 75%, moe 16%");
  // Another number of steps has a line already.
  for (const size_t i : {2, 3}) runs[i].config.schedule.warmdown = 14;
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs)[0].text == "schedule.warmdown differs: dense 15, moe 14");
  // One share of few steps, rounded up.
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.schedule.warmup = 0;
    runs[i].config.schedule.warmdown = 0;
    runs[i].config.schedule.warmdown_fraction = 0.3;
    runs[i].config.run.steps = i < 2 ? 7 : 10;  // 3 of both
  }
  REQUIRE(of(runs).empty());
}

TEST_CASE("the split of a step is a confound where a loss or a format depends on it") {
  std::vector<RunRecord> runs = two_models();
  const auto set = [&](auto&& change) {
    for (size_t i = 0; i < runs.size(); ++i) change(runs[i].config, i < 2);
  };
  set([](Config& c, bool first) {
    MoeConfig& moe = c.model.moe.emplace();
    moe.experts = 8, moe.top_k = 2;
    moe.router.aux = RouterAux::kNone;
    moe.router.aux_alpha = 0.01;
    c.run.micro_batch = first ? 4 : 32;
  });
  REQUIRE(of(runs).empty());
  set([](Config& c, bool) { c.model.moe->router.aux = RouterAux::kSwitch; });
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs)[0].name == "balancing");
  REQUIRE(of(runs)[0].text ==
          "run.micro_batch differs: dense 4, moe 32; the auxiliary loss of aux_scope micro is of a "
          "micro-batch");
  set([](Config& c, bool) { c.model.moe->router.aux_scope = AuxScope::kSequence; });
  REQUIRE(of(runs).empty());
  set([](Config& c, bool first) {
    c.model.moe->router.aux_scope = AuxScope::kStep;
    c.run.micro_batch = 4;
    c.parallel.parts = first ? 0 : 2;
  });
  REQUIRE(of(runs)[0].text ==
          "parallel.parts differs: dense 1, moe 2; the auxiliary loss of aux_scope step is of a "
          "part of the step so far");
  set([](Config& c, bool first) {
    c.model.moe.reset();
    c.parallel.parts = 0;
    c.run.micro_batch = first ? 4 : 32;
    c.precision.recipe = "mxfp8";  // scales of its rows' own
  });
  REQUIRE(of(runs).empty());
  set([](Config& c, bool) { c.precision.recipe = "fp8_tensor"; });
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs)[0].name == "precision");
  REQUIRE(of(runs)[0].text ==
          "run.micro_batch differs: dense 4, moe 32; the formats scale or round the rows of a "
          "micro-batch together");
  // Backward products, and only those that the models make.
  set([](Config& c, bool) { c.precision.recipe = "fp8_block"; });
  const size_t own = of(runs).size();
  for (const auto& [line, more] :
       {std::pair{"gradient=fp8_e5m2", true}, std::pair{"dgrad.gradient=mxfp8+sr", true},
        std::pair{"wgrad.input=nvfp4", true}, std::pair{"weight=fp8_e4m3", false},
        std::pair{"experts.gradient=fp8_e5m2", false}}) {
    INFO(line);
    set([&](Config& c, bool) { c.precision.override_ = {line}; });
    REQUIRE(of(runs).size() == own + (more ? 1 : 0));
  }
}

TEST_CASE("a part of the schedule that was given alike is alike over other steps") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) {
    run.config.schedule = {.warmup = 10, .warmdown = 0, .decay = DecayShape::kCosine};
  }
  for (const size_t i : {2, 3}) runs[i].config.run.steps = 200;
  REQUIRE(of(runs).empty());  // 90 of 100 steps, 190 of 200
  for (const size_t i : {2, 3}) runs[i].config.schedule.warmdown = 100;
  REQUIRE(of(runs).at(0).text == "schedule.warmdown differs: dense 90, moe 100");
}

TEST_CASE("a mixture whose gates make its branch smaller than the dense FFN is said to") {
  std::vector<RunRecord> runs = two_models();
  for (const size_t i : {2, 3}) runs[i].config.model.moe.emplace().top_k = 4;
  REQUIRE(of(runs).at(0).text.find("of its width: dense 1, moe 0.25;") != std::string::npos);
  REQUIRE(confounds_sentence(of(runs)) == "They also differ in branch scale.");
  for (const size_t i : {2, 3}) runs[i].config.model.moe->router.gate_scale = 4;
  REQUIRE(of(runs).empty());
}

TEST_CASE("a shared expert at one active width is said to change branch and experts") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    MoeConfig& moe = runs[i].config.model.moe.emplace();
    moe.experts = 8, moe.top_k = 2, moe.shared = i < 2 ? 0 : 1, moe.expert_ffn = i < 2 ? 96 : 64;
  }
  const std::vector<Confound> found = of(runs);
  REQUIRE(confounds_sentence(found) == "They also differ in expert width, branch scale.");
  REQUIRE(found.at(1).text.find("dense 0.5, moe 0.707;") != std::string::npos);
}

TEST_CASE("passes over the data are named where they differ and one is more than a pass") {
  std::vector<RunRecord> runs = two_models();
  for (RunRecord& run : runs) {
    run.config.data.shuffle = false;
    run.config.data.synth = SynthConfig{.train_tokens = 100'001};  // 100 steps of 1000 tokens
  }
  for (const size_t i : {2, 3}) runs[i].steps_done = 50;
  REQUIRE(of(runs).empty());
  for (const size_t i : {2, 3}) runs[i].steps_done = 150;
  REQUIRE(of(runs).size() == 1);
  REQUIRE(of(runs).at(0).name == "passes");
  REQUIRE(of(runs).at(0).text == "passes over the training data differ: dense 1.00, moe 1.50");
  for (const size_t i : {0, 1}) runs[i].steps_done = 150;
  REQUIRE(of(runs).empty());
}

TEST_CASE("passes are those over the data that was trained on, not over what is there now") {
  const TempFolder folder;
  const std::string first = folder / "x_train_0.bin", more = folder / "x_train_1.bin";
  const std::string hash = write_shard(first, counting(0, 100'001, 50), 50);
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].config.data.shuffle = false;
    runs[i].config.data.train = {folder / "x_train_*.bin"};
    runs[i].config.data.val = {folder / "x_val_*.bin"};
    runs[i].data_sha256 = {{first, hash}, {folder / "x_val_0.bin", "cccc"}};
    runs[i].steps_done = i < 2 ? 100 : 150;
  }
  const std::string text = "passes over the training data differ: dense 1.00, moe 1.50";
  REQUIRE(of(runs).at(0).text == text);  // of an older version: from the same files
  write_shard(more, counting(0, 100'001, 50), 50);
  REQUIRE(of(runs).empty());  // which it did not read
  for (RunRecord& run : runs) run.epoch_tokens = 100'000;
  REQUIRE(of(runs).at(0).text == text);
  std::filesystem::remove(first);
  REQUIRE(of(runs).at(0).text == text);
}

TEST_CASE("the tokens of a pass are those of meta.json, which older versions did not write") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  REQUIRE(!read_run(run.path).epoch_tokens);
  auto meta = nlohmann::json::parse(read_file(run.path + "/meta.json"));
  meta["epoch_tokens"] = 12'800;
  write_file_plain(run.path + "/meta.json", meta.dump());
  REQUIRE(read_run(run.path).epoch_tokens == 12'800);
}

TEST_CASE("what meta.json has in another type is not known") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  auto meta = nlohmann::json::parse(read_file(run.path + "/meta.json"));
  for (const bool dirty : {true, false}) {
    meta["dirty"] = dirty;
    write_file_plain(run.path + "/meta.json", meta.dump());
    REQUIRE(read_run(run.path).dirty == dirty);
  }
  meta["dirty"] = "x";
  meta["data_sha256"] = "x";
  write_file_plain(run.path + "/meta.json", meta.dump());
  const RunRecord record = read_run(run.path);
  REQUIRE((!record.dirty && record.data_sha256.empty()));
}

TEST_CASE("a manifest that has another text under the same name is taken at its word") {
  const TempFolder folder;
  const std::string file = folder / "x_train_0.bin";
  RunRecord run = two_models()[0];
  run.config.data.shuffle = false;
  run.config.data.train = {file};
  run.config.data.val = {folder / "x_val_0.bin"};
  run.data_sha256 = {{file, write_shard(file, counting(0, 50'001, 50), 50)},
                     {folder / "x_val_0.bin", "cccc"}};
  REQUIRE(passes_of(run) == 2.0);
  Manifest manifest;
  manifest.tokenizer_file = "tokenizer.json";
  manifest.shards = {{.file = "x_train_0.bin",
                      .split = "train",
                      .tokens = 50'001,
                      .documents = 1,
                      .sha256 = run.data_sha256[file]}};
  write_file_plain(folder / kManifestName, manifest_text(manifest));
  REQUIRE(passes_of(run) == 2.0);
  manifest.shards[0].sha256 = std::string(64, '0');
  write_file_plain(folder / kManifestName, manifest_text(manifest));
  REQUIRE(!passes_of(run));
}

TEST_CASE("builds of the program are named, also those of one model") {
  std::vector<RunRecord> runs = two_models();  // dense, dense, moe, moe
  for (RunRecord& run : runs) {
    run.commit = "0123456789abcdef";
    run.program_sha256 = std::string(64, 'a');
  }
  REQUIRE(of(runs).empty());
  runs[1].program_sha256 = std::string(64, 'b');
  REQUIRE(of(runs).at(0).text ==
          "builds of the program differ: dense SHA-256 aaaaaaaaaaaaaaaa (1 run) and SHA-256 "
          "bbbbbbbbbbbbbbbb (1 run), moe SHA-256 aaaaaaaaaaaaaaaa");
  runs[1].commit = "fedcba9876543210";
  REQUIRE(of(runs).at(0).text ==
          "builds of the program differ: dense 012345678 (1 run) and fedcba987 (1 run), moe "
          "012345678");
  REQUIRE(of(runs).at(0).name == "program");
  runs[3].program_sha256.clear();  // of an earlier version
  REQUIRE(of(runs).empty());
}

TEST_CASE("models of other seeds are said to be") {
  const std::vector<RunRecord> runs = {run_of("dense-s1", 1, 64, 3.30),
                                       run_of("dense-s2", 2, 64, 3.10),
                                       run_of("moe-s1", 1, 99, 3.25)};
  REQUIRE(of(runs).at(0).text == "seeds differ: dense 1 2, moe-s1 1");
}

}  // namespace assay::test_confounds
