#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/telemetry/telemetry.h"
#include "lab/compare/published.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/run_records.h"

namespace assay::test_published {
namespace {

// The cell of the first row whose keys start with `keys`.
nlohmann::ordered_json cell(const PublishedTable& table, const std::vector<std::string>& keys,
                            const std::string& column) {
  for (const auto& row : table.rows) {
    if (!std::equal(keys.begin(), keys.end(), row.begin())) continue;
    for (size_t c = 0; c < table.columns.size(); ++c)
      if (table.columns[c].key == column) return row[table.keys.size() + c];
  }
  return "no such cell";
}

}  // namespace

// published_study() checks that its columns name existing measures.
TEST_CASE("every study can be read") {
  REQUIRE(published_names() == std::vector<std::string>{"0003", "0004", "0006", "tiny"});
  for (const std::string& name : published_names()) {
    const PublishedStudy study = published_study(name);
    REQUIRE(study.name == name);
    REQUIRE(!study.title.empty());
    REQUIRE(!study.setting.empty());
    REQUIRE(!study.tables.empty());
    for (const PublishedTable& table : study.tables) {
      REQUIRE(!table.rows.empty());
      for (const PublishedColumn& c : table.columns) {
        INFO(name << ": " << table.title << ": " << c.key);
        REQUIRE(!c.what.empty());
      }
    }
  }
}

TEST_CASE("figures are as published") {
  const PublishedTable closure = published_study("0003").tables[0];
  REQUIRE(closure.rows.size() == 9);
  REQUIRE(cell(closure, {"bf16", "dense"}, "val_loss") == 3.2725);
  REQUIRE(cell(closure, {"bf16", "dense"}, "train_time") == 21.8);
  REQUIRE(cell(closure, {"fp8", "moe-256"}, "step_time") == 693.09);
  REQUIRE(cell(closure, {"nvfp4", "moe-64"}, "val_loss") == 3.5950);
  REQUIRE(cell(closure, {"nvfp4", "moe-64"}, "step_time").is_null());
  const PublishedTable contracts = published_study("0004").tables[0];
  REQUIRE(cell(contracts, {"totalDN, 20%", "moe-256"}, "stop_step") == 28393);
  REQUIRE(cell(published_study("0006").tables[0], {"4096"}, "layer 11 max@512") == 14.26);
  REQUIRE(cell(published_study("0006").tables[0], {"1024"}, "E_eff@512") == 15.2);
  REQUIRE(cell(published_study("0003").tables[1], {"calibration", "moe-256"}, "step_time") == 1404);
  REQUIRE(cell(published_study("tiny").tables[0], {"MoE"}, "best_val_loss") == 1.5788);
}

TEST_CASE("an unknown study names the nearest") {
  expect_error([] { published_study("003"); }, "there is no published study 003");
}

TEST_CASE("the score of a run stands beside the published one, if it is the whole of CORE") {
  const TempFolder folder;
  std::vector<RunRecord> runs = {hand_made({.name = "a", .val_loss_nats = {{100, 3.0, 10}}})};
  runs[0].path = folder / "a";
  make_folders(runs[0].path);
  const PublishedColumn column{
      .key = "core", .unit = "share", .what = "w", .measure = "core", .step = {}, .layer = {}};
  const auto shown = [&](const char* metric, double value) {
    Telemetry telemetry(runs[0].path + "/telemetry.db", {});
    telemetry.evals(100, {{"core", metric, value, 500}});
    telemetry.flush();
    runs[0].core =
        read_recorded_core(runs[0].path, TelemetryReader(runs[0].path + "/telemetry.db"));
    return published_measure(column, group_by_seed(runs).front(), {});
  };
  REQUIRE(!shown("mean_of_2_of_22_tasks", 0.3));
  std::filesystem::remove(runs[0].path + "/telemetry.db");
  REQUIRE(shown("core", 0.0608) == 0.0608);
}

TEST_CASE("the value of a column for our models") {
  std::vector<RunRecord> runs = {
      hand_made({.name = "a-s1",
                 .seed = 1,
                 .val_loss_nats = {{.step = 50, .value = 3.2}, {.step = 100, .value = 3.4}}}),
      hand_made({.name = "a-s2",
                 .seed = 2,
                 .val_loss_nats = {{.step = 50, .value = 3.4}, {.step = 100, .value = 3.0}}})};
  for (RunRecord& run : runs) run.ranks = "1";
  const SeedGroup group = group_by_seed(runs).front();
  const struct {
    const char* measure;
    std::optional<int64_t> step;
    std::optional<double> target, value;
  } rows[] = {
      {"val_loss", {}, {}, 3.2},
      {"val_loss", 50, {}, 3.3},
      {"val_loss", 60, {}, {}},
      {"best_val_loss", {}, {}, 3.1},
      {"best_val_loss_sd", {}, {}, 0.1414213562},
      {"stop_step", {}, {}, 100.0},
      {"stop_step", {}, 3.25, 75.0},
      {"last_step", {}, 3.25, 100.0},
      {"val_loss", {}, 3.25, 3.1},  // 3.2 where the first seed reached it, 3.0 of the second
      {"last_val_loss", {}, 3.25, 3.2},
      {"train_minutes", {}, 3.25, 0.625},
      {"step_ms", {}, {}, 500.0},
      {"k_tokens_per_s", {}, {}, 2.0},
      {"tflops_per_s", {}, {}, 6e-8},
      {"tokens_per_total", {}, {}, 20.0},
      {"core", {}, {}, {}},
      {"mean_cv_percent", 50, {}, {}},  // dense
      {"bits_per_byte", {}, {}, {}},
      {"", {}, {}, {}},
  };
  for (const auto& row : rows) {
    INFO(row.measure);
    const PublishedColumn column{
        .key = "k", .unit = "", .what = "w", .measure = row.measure, .step = row.step, .layer = {}};
    const auto found = published_measure(column, group, row.target);
    REQUIRE(found.has_value() == row.value.has_value());
    if (found) REQUIRE(*found == Approx(*row.value));
  }
}

TEST_CASE("speeds of a GPU are those of the run divided by its ranks") {
  const struct {
    const char* ranks;
    std::optional<double> k_tokens_per_s;
  } rows[] = {{"1", 2.0}, {"8", 0.25}, {"4, then 8", {}}, {"", {}}};
  for (const auto& row : rows) {
    INFO(row.ranks);
    std::vector<RunRecord> runs = {hand_made({.name = "a", .val_loss_nats = {{100, 3.0, 10}}})};
    runs[0].ranks = row.ranks;
    const PublishedColumn column{
        .key = "k", .unit = "", .what = "w", .measure = "k_tokens_per_s", .step = {}, .layer = {}};
    REQUIRE(published_measure(column, group_by_seed(runs).front(), {}) == row.k_tokens_per_s);
  }
}

TEST_CASE("a run that went on after the target has no score at the stop") {
  std::vector<RunRecord> runs = {
      hand_made({.name = "a",
                 .seed = 1,
                 .val_loss_nats = {{.step = 50, .value = 3.2}, {.step = 100, .value = 3.0}}})};
  runs[0].core = RecordedCore{.name = "core", .value = 0.06, .step = 100, .file = {}};
  const PublishedColumn at_stop{
      .key = "k", .unit = "", .what = "w", .measure = "core", .step = {}, .layer = {}};
  PublishedColumn at_end = at_stop;
  at_end.measure = "last_core";
  const SeedGroup group = group_by_seed(runs).front();
  REQUIRE(published_measure(at_stop, group, 3.25) == std::nullopt);
  REQUIRE(published_measure(at_stop, group, 2.5) == 0.06);
  REQUIRE(published_measure(at_end, group, 3.25) == 0.06);
}

}  // namespace assay::test_published
