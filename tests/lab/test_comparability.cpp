#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "lab/compare/compare.h"
#include "lab/runs/data_roles.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/compared_runs.h"

namespace assay::test_comparability {
namespace {

using compared_runs::mentions;
using compared_runs::run_of;
using compared_runs::two_models;

}  // namespace

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

TEST_CASE("a tokenizer that only one of two runs was given makes them no other runs") {
  std::vector<RunRecord> runs = two_models();
  runs[3].data_sha256.erase("/d/tokenizer.json");
  REQUIRE(incomparable_differences(runs).empty());
  for (RunRecord& run : runs) {
    run.config.data.train = {"/d/x_train_*.bin"};
    run.config.data.val = {"/d/x_val_*.bin"};
  }
  REQUIRE(incomparable_differences(runs).empty());
  // Of other shards it may be another one.
  runs[3].data_sha256["/d/x_val_0.bin"] = "eeee";
  const std::vector<std::string> found = incomparable_differences(runs);
  REQUIRE(mentions(found, "tokenizer: aaaa in dense-s1, none in moe-s2"));
  REQUIRE(mentions(found, "validation data: x_val_0.bin cccc in dense-s1, x_val_0.bin eeee"));
}

TEST_CASE("a tokenizer whose file was only laid out anew is the same one") {
  std::vector<RunRecord> runs = two_models();
  runs[3].data_sha256["/d/tokenizer.json"] = "eeee";
  runs[3].tokenizer_sha256 = "aaaa";  // the others do not record it, but Assay wrote their file
  REQUIRE(incomparable_differences(runs).empty());
  for (RunRecord& run : runs) run.tokenizer_sha256 = "ffff";
  REQUIRE(incomparable_differences(runs).empty());
  runs[3].tokenizer_sha256 = "dddd";
  REQUIRE(mentions(incomparable_differences(runs), "tokenizer: aaaa in dense-s1, eeee in moe-s2"));
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
      {"validation data that was trained on: none in dense-s1, x_val_0.bin cccc, x_val_1.bin dddd "
       "in moe-s2",
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
  REQUIRE(training_differences(runs).empty());
  // Another training text alone leaves the losses comparable.
  for (const size_t i : {2, 3}) {
    runs[i] = with_roles()[i];
    runs[i].data_sha256["/d/x_train_0.bin"] = "ffff";
  }
  REQUIRE(incomparable_differences(runs).empty());
  REQUIRE(mentions(training_differences(runs),
                   "training data: x_train_0.bin bbbb in dense-s1, x_train_0.bin ffff in moe-s2"));
  const Comparison c = compare(runs, {});
  REQUIRE(c.rankings.size() == 1);
  REQUIRE(c.confounds.size() == 1);
  REQUIRE(c.confounds[0].name == "training_data");
  REQUIRE(c.confounds[0].text ==
          "training data differs: dense x_train_0.bin bbbb, moe x_train_0.bin ffff");
  for (const size_t i : {2, 3}) {
    runs[i] = with_roles()[i];
    runs[i].data_sha256["/d/x_train_1.bin"] = "eeee";
  }
  REQUIRE(compare(runs, {}).confounds.at(0).text ==
          "training data differs: dense no shard of its own (of 1), moe x_train_1.bin eeee");
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
  REQUIRE(mentions(training_differences(runs), "training data: x_train_0.bin bbbb in dense-s1"));
  REQUIRE(incomparable_differences(runs).empty());
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

TEST_CASE("runs that trained on other parts of their validation data are not comparable") {
  std::vector<RunRecord> runs = two_models();
  for (size_t i = 0; i < runs.size(); ++i) {
    RunRecord& r = runs[i];
    r.data_sha256["/d/x_val_1.bin"] = "dddd";
    r.config.data.val = {"/d/x_val_*.bin"};
    r.config.data.train = {"/d/x_train_*.bin", i < 2 ? "/d/x_val_0.bin" : "/d/x_val_1.bin"};
  }
  const char* const says =
      "validation data that was trained on: x_val_0.bin cccc in dense-s1, x_val_1.bin dddd in "
      "moe-s1";
  REQUIRE(mentions(incomparable_differences(runs), says));
  expect_error([&] { compare(runs, {}); }, "the runs are not comparable: ");
  // The same part under other names.
  for (const size_t i : {2, 3}) {
    runs[i].data_sha256 = {{"/e/tokenizer.json", "aaaa"},
                           {"/e/a.bin", "cccc"},
                           {"/e/b.bin", "dddd"},
                           {"/e/c.bin", "bbbb"}};
    runs[i].config.data.val = {"/e/[ab].bin"};
    runs[i].config.data.train = {"/e/[ac].bin"};
  }
  REQUIRE(incomparable_differences(runs).empty());
}

TEST_CASE("the same shards in another folder are the same data") {
  std::vector<RunRecord> runs = two_models();
  runs[3].data_sha256 = {
      {"/a/x_val_0.bin", "cccc"}, {"/e/tokenizer.json", "aaaa"}, {"/z/x_train_0.bin", "bbbb"}};
  REQUIRE(incomparable_differences(runs).empty());
}

}  // namespace assay::test_comparability
