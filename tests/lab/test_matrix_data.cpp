#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "lab/matrix/claims.h"
#include "lab/matrix/report.h"
#include "lab/matrix/state.h"
#include "lab/runs/data_roles.h"
#include "tests/catch.h"
#include "tests/lab/matrix_family.h"
#include "tests/lab/planted_measures.h"

namespace assay::test_matrix_data {
namespace {

using planted_measures::claim;
using planted_measures::planted_table;
using planted_measures::Table;
constexpr auto kBelow = MatrixClaim::Relation::kBelow;

// The runs of planted_table() with a training and a validation file each.
Table table_with_data() {
  Table t = planted_table();
  for (RunRecord& run : t.runs) {
    run.config.data.train = {"/d/x_train_*.bin"};
    run.config.data.val = {"/d/x_val_*.bin"};
    run.data_sha256 = {{"/d/x_train_0.bin", "aaaa"}, {"/d/x_val_0.bin", "bbbb"}};
  }
  return t;
}

std::string change_text(const DataHashes& before, const DataHashes& now) {
  const std::optional<FieldDifference> change = data_change(before, now);
  return change ? change->text() : "";
}

}  // namespace

TEST_CASE("the first file of other content is named") {
  const FileHashes before = {{"/clean/x_train_0.bin", "aaaaaaaaaaaaaaaa"},
                             {"/clean/x_val_0.bin", "bbbb"},
                             {"/clean/tokenizer.json", "cccc"}};
  struct Row {
    FileHashes now;
    const char* says;
  };
  const Row rows[] = {
      {before, ""},
      {{}, ""},  // not on this machine
      {{{"/moved/x_train_0.bin", "aaaaaaaaaaaaaaaa"}, {"/elsewhere/x_val_0.bin", "bbbb"}}, ""},
      {{{"/noisy/x_train_0.bin", "dddddddddddddddd"}, {"/clean/x_val_0.bin", "bbbb"}},
       "data x_train_0.bin: aaaaaaaaaaaa -> dddddddddddd"},
      {{{"/clean/x_train_0.bin", "aaaaaaaaaaaaaaaa"}}, "data x_val_0.bin: bbbb -> none"},
      {{{"/a/x_train_0.bin", "aaaaaaaaaaaaaaaa"},
        {"/a/x_train_1.bin", "dddd"},
        {"/a/x_val_0.bin", "bbbb"}},
       "data x_train_1.bin: none -> dddd"},
      {{{"/a/x_train_0.bin", "aaaaaaaaaaaaaaaa"},
        {"/a/x_val_0.bin", "bbbb"},
        {"/a/tokenizer.json", "dddd"}},
       "data tokenizer.json: cccc -> dddd"},
  };
  for (const Row& row : rows) {
    INFO(row.says);
    REQUIRE(change_text({before}, {row.now}) == row.says);
  }
  REQUIRE(change_text({}, {before}).empty());  // not recorded
}

TEST_CASE("a tokenizer in other bytes is the same one if it says the same") {
  const auto data = [](const char* bytes, const char* content) {
    return DataHashes{.files = {{"/d/x_train_0.bin", "aaaa"}, {"/d/tokenizer.json", bytes}},
                      .tokenizer_sha256 = content};
  };
  REQUIRE(change_text(data("bbbb", "cccc"), data("dddd", "cccc")).empty());
  REQUIRE(change_text(data("cccc", ""), data("dddd", "cccc")).empty());  // Assay wrote the first
  const char* const other = "data tokenizer.json: bbbb -> dddd";
  REQUIRE(change_text(data("bbbb", ""), data("dddd", "cccc")) == other);  // not recorded
  REQUIRE(change_text(data("bbbb", "cccc"), data("dddd", "eeee")) == other);
  // Two files, of which one is equal, are another tokenizer.
  const auto gpt2 = [](const char* merges, const char* content) {
    return DataHashes{.files = {{"/d/x_train_0.bin", "aaaa"},
                                {"/d/vocab.json", "bbbb"},
                                {"/d/merges.txt", merges}},
                      .tokenizer_sha256 = content};
  };
  REQUIRE(change_text(gpt2("cccc", ""), gpt2("dddd", "")) == "data merges.txt: cccc -> dddd");
  REQUIRE(change_text(gpt2("cccc", "eeee"), data("dddd", "eeee")).empty());
}

TEST_CASE("a run that was trained on other data than its cell reads is an edited one") {
  const matrix_family::Family family;
  Matrix m = family.matrix(matrix_family::kMatrix);
  make_folders(family.runs().path());
  write_matrix(family.runs(), m, {});
  Cell& cell = m.cells.front();
  family.begin(cell);
  write_file_atomic(family.runs().run(cell) + "/meta.json",
                    R"({"data_sha256": {"/clean/x_train_0.bin": "aaaa"}})");
  REQUIRE(!find_edits(family.runs(), m).any());
  cell.data.files = {{"/moved/x_train_0.bin", "aaaa"}};
  REQUIRE(!find_edits(family.runs(), m).any());
  cell.data.files = {{"/noisy/x_train_0.bin", "dddd"}};
  const MatrixEdits edits = find_edits(family.runs(), m);
  REQUIRE(edits.changed_cells == std::vector<std::string>{cell.name});
  REQUIRE(edits.changed.size() == 1);
  REQUIRE(edits.changed[0].text() == cell.name + ": data x_train_0.bin: aaaa -> dddd");
}

TEST_CASE("rows whose runs saw other data have no rank and decide no claim") {
  Table t = table_with_data();
  mark_mixed_data(t.tables, false);
  for (const SummaryRow& row : t.tables[0].rows) REQUIRE(row.mixed_data.empty());

  t.runs[2].data_sha256["/d/x_train_0.bin"] = "eeee";  // the third seed of "full"
  t.runs[6].data_sha256["/d/x_val_0.bin"] = "ffff";    // the seed of "one"
  mark_mixed_data(t.tables, false);
  const std::vector<SummaryRow>& rows = t.tables[0].rows;
  const std::string says =
      "training data of full-seed3 is x_train_0.bin eeee, of full-seed1 x_train_0.bin aaaa";
  REQUIRE(rows[0].mixed_data == says);
  REQUIRE(rows[1].mixed_data.empty());
  REQUIRE(rows[2].mixed_data ==
          "validation data of one-seed2 is x_val_0.bin ffff, of full-seed1 x_val_0.bin bbbb");
  const ClaimResult full =
      evaluate_claims({claim("val_loss", "full", kBelow, "", 9)}, t.tables).front();
  REQUIRE((full.verdict == ClaimVerdict::kUndecided && full.why == says));
  REQUIRE(undecided_claims({full}).empty());  // no further seed decides it
  REQUIRE(evaluate_claims({claim("val_loss", "even", kBelow, "", 9)}, t.tables).front().why == "");

  const Matrix matrix;
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  summary.mixed_data = says;
  REQUIRE(summary_markdown(summary).find("\nNOT COMPARABLE: " + says + ".\n") != std::string::npos);
  REQUIRE(nlohmann::json::parse(summary_json(summary))["different_data"] == says);
}

TEST_CASE("models that were given other data are compared with themselves") {
  Table t = table_with_data();
  for (size_t i = 3; i < 6; ++i) t.runs[i].data_sha256["/d/x_train_0.bin"] = "eeee";  // "even"
  t.runs[5].data_sha256["/d/x_train_0.bin"] = "ffff";
  t.runs[0].data_sha256.clear();  // of a program that did not record it
  mark_mixed_data(t.tables, true);
  const std::vector<SummaryRow>& rows = t.tables[0].rows;
  REQUIRE((rows[0].mixed_data.empty() && rows[2].mixed_data.empty()));
  REQUIRE(rows[1].mixed_data ==
          "training data of even-seed3 is x_train_0.bin ffff, of even-seed1 x_train_0.bin eeee");
}

TEST_CASE("shards in other folders and under other names are the same data") {
  Table t = table_with_data();
  t.runs[1].data_sha256 = {{"/e/a.bin", "bbbb"}, {"/e/b.bin", "aaaa"}};
  REQUIRE(different_shards(t.runs[0], t.runs[1]).empty());
  t.runs[1].data_sha256 = {{"/e/a.bin", "bbbb"}};  // of no role
  REQUIRE(different_shards(t.runs[0], t.runs[1]) ==
          "data of full-seed2 is no further shard, of full-seed1 x_train_0.bin aaaa");
}

TEST_CASE("validation files in another order are other validation data") {
  Table t = table_with_data();
  t.runs[0].data_sha256 = t.runs[1].data_sha256 = {{"/d/x_train_0.bin", "aaaa"},
                                                   {"/d/x_train_1.bin", "bbbb"},
                                                   {"/d/x_val_0.bin", "cccc"},
                                                   {"/d/x_val_1.bin", "dddd"},
                                                   {"/d/x_val_2.bin", "eeee"}};
  REQUIRE(different_shards(t.runs[0], t.runs[1]).empty());
  std::swap(t.runs[1].data_sha256["/d/x_train_0.bin"], t.runs[1].data_sha256["/d/x_train_1.bin"]);
  REQUIRE(different_shards(t.runs[0], t.runs[1]).empty());
  std::swap(t.runs[1].data_sha256["/d/x_val_1.bin"], t.runs[1].data_sha256["/d/x_val_2.bin"]);
  REQUIRE(different_shards(t.runs[0], t.runs[1]) ==
          "validation data of full-seed2 is x_val_1.bin eeee, of full-seed1 x_val_1.bin dddd");
}

TEST_CASE("runs with fewer logged steps than the window decide no claim on their routers") {
  Table t = planted_table();
  for (size_t i : {1, 2}) {  // seeds 2 and 3 of "full"
    t.runs[i].health->logged = 60;
    t.runs[i].health->window = 100;
  }
  for (size_t i : {0, 1, 2}) t.runs[i].config.model.moe.emplace().experts = 64;
  const auto judged = [&](const char* measure, double bound) {
    return evaluate_claims({claim(measure, "full", kBelow, "", bound)}, t.tables).front();
  };
  const std::string early = "60 of 100 logged steps (telemetry.window) in 2 of 3 runs of full";
  for (const char* measure : {"cv", "step_cv", "swing", "max_load", "max_load_worst",
                              "max_load_by_depth", "entropy_min", "effective_experts", "dead"}) {
    INFO(measure);
    const ClaimResult r = judged(measure, 1000);
    REQUIRE(r.why == early);
    REQUIRE(r.verdict == ClaimVerdict::kUndecided);
    REQUIRE(r.compared->n == 3);  // the measure has a value in every run
  }
  REQUIRE(judged("max_load_worst", 1000).why == early);
  REQUIRE(judged("val_loss", 1000).verdict == ClaimVerdict::kHolds);
  REQUIRE(judged("first_saturation", 1000).verdict == ClaimVerdict::kHolds);  // of any logged step
  t.runs[1].health->stopped_by_guard = t.runs[2].health->stopped_by_guard = true;
  REQUIRE(judged("max_load_worst", 1000).verdict == ClaimVerdict::kHolds);  // a collapse is one
}

TEST_CASE("a table says which routers are too early to judge, and of how many steps they are") {
  Table t = planted_table();
  SummaryRow& full = t.tables[0].rows[0];
  full.worst_load = 0.9;
  full.too_early = 3;
  t.cells[0].config.telemetry.window = 100;
  for (size_t i = 0; i < 3; ++i) {
    t.runs[i].health->logged = 60;
    t.runs[i].health->window = 100;
  }
  const Matrix matrix;
  MatrixSummary summary;
  summary.matrix = &matrix;
  summary.tables = t.tables;
  const std::string text = summary_markdown(summary);
  INFO(text);
  REQUIRE(text.find("0.90 too early (3 of 3)") != std::string::npos);
  REQUIRE(text.find("experts over the last 60 logged steps") != std::string::npos);
  const auto json = nlohmann::json::parse(summary_json(summary));
  REQUIRE(json["contracts"][0]["rows"][0]["too_early_runs"] == 3);
}

}  // namespace assay::test_matrix_data
