#include <algorithm>
#include <filesystem>

#include "eval/core_score.h"
#include "lab/matrix/claims.h"
#include "lab/runs/core_answers.h"
#include "lab/runs/core_questions.h"
#include "lab/runs/launches.h"
#include "lab/runs/machine.h"
#include "lab/runs/run_measures.h"
#include "session/eval_file.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/fake_run.h"

namespace assay::test_core_answers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// CORE with these answers to its first two tasks, as session/core_evaluator.cpp records it: the
// answers to the others are the same in all.
Json core_of(const std::string& first, const std::string& second, int64_t max_rows = 0,
             const std::vector<std::string>& missing = {}) {
  std::vector<std::pair<std::string, std::string>> tasks;
  for (const std::string& label : core_labels()) {
    if (std::count(missing.begin(), missing.end(), label) == 0) tasks.emplace_back(label, "1");
  }
  tasks[0].second = first;
  tasks[1].second = second;
  Json core;
  core["max_tokens"] = 64;
  core["max_rows_per_task"] = max_rows;
  core["missing"] = missing;
  core["tasks"] = Json::array();
  for (const auto& [label, answers] : tasks) {
    Json task;
    task["label"] = label;
    task["baseline_percent"] = 0;
    task["rows"] = answers.size();
    task["answers"] = answers;
    core["tasks"].push_back(task);
  }
  return core;
}

// A run whose last step has this CORE.
RunRecord run_with(const TempFolder& folder, const std::string& name, const Json& core) {
  const FakeRun run{.path = folder / name, .data = folder / "data"};
  run.write();
  Telemetry telemetry(run.path + "/telemetry.db",
                      {.scalars = {"train_loss_nats", "hash", "train_s"},
                       .spans = {"step"},
                       .layers = {1, 2},
                       .experts = 4});
  telemetry.evals(FakeRun::kSteps, {{"core", "core", 0.25, 8}});
  record_evaluation(run.path, FakeRun::kSteps, Json{{"core", core}});
  return read_run(run.path);
}

SeedGroup group_of(const RunRecord& run) {
  return {.name = run.name, .runs = {&run}};
}

std::optional<CoreDifference> difference(const RunRecord& a, const RunRecord& b) {
  return core_row_difference(group_of(a), group_of(b));
}

}  // namespace

TEST_CASE("the answers of two runs to CORE are compared row by row") {
  const TempFolder folder;
  const RunRecord a = run_with(folder, "a", core_of("1100", "11-1"));
  const RunRecord b = run_with(folder, "b", core_of("1000", "10-1"));
  const auto answers = core_answers(a);
  REQUIRE(answers);
  REQUIRE(answers->size() == 22);
  REQUIRE((*answers)[1].label == core_labels()[1]);
  REQUIRE((*answers)[1].right == std::vector<double>{1, 1, -1, 1});
  const auto found = difference(a, b);
  REQUIRE(found);
  REQUIRE(found->mean == Approx((0.25 + 1 / 3.) / 22));
}

TEST_CASE("part of CORE is no CORE to compare") {
  const TempFolder folder;
  const RunRecord whole = run_with(folder, "whole", core_of("1100", "1111"));
  REQUIRE_FALSE(difference(whole, run_with(folder, "rows", core_of("11", "11", 2))));
  REQUIRE_FALSE(difference(whole, run_with(folder, "tasks", core_of("1100", "1111", 0, {"copa"}))));
  Json trimmed = core_of("1100", "1111", 0, {"copa"});  // of a bundle without that task
  trimmed["missing"] = Json::array();
  REQUIRE_FALSE(difference(whole, run_with(folder, "trimmed", trimmed)));
}

TEST_CASE("a file that has lost all of CORE says why its rows are not compared") {
  const TempFolder folder;
  const RunRecord a = run_with(folder, "a", core_of("1100", "1111")),
                  few = run_with(folder, "few", core_of("1100", "1111", 100));
  const std::string why =
      "a later evaluation replaced the answers of few: step-00000040.json has not all of CORE";
  REQUIRE(compare_core_rows(group_of(a), group_of(few)).absent == why);
  REQUIRE(compare_core_rows(group_of(few), group_of(a)).absent == why);
  RunRecord none = run_with(folder, "none", core_of("1100", "1111"));
  none.core.reset();
  REQUIRE(compare_core_rows(group_of(few), group_of(none)).absent.empty());
}

TEST_CASE("answers to prompts of other lengths, or of a later evaluation, are not compared") {
  const TempFolder folder;
  const RunRecord a = run_with(folder, "a", core_of("1100", "1111"));
  Json longer = core_of("1000", "1011");
  longer["max_tokens"] = 512;
  const RunRecord b = run_with(folder, "b", longer);
  REQUIRE_FALSE(difference(a, b));
  REQUIRE(compare_core_rows(group_of(a), group_of(b)).absent ==
          "a was scored with prompts of at most 64 tokens, b with 512");
  const SeedGroup both{.name = "both", .runs = {&a, &b}};
  REQUIRE(compare_core_rows(both, both).absent.starts_with("a was scored with prompts"));
  longer.erase("max_tokens");  // of an old version
  REQUIRE(difference(a, run_with(folder, "c", longer)));
  Json replaced = core_of("1000", "1011");
  replaced["core"] = 0.25;
  REQUIRE(difference(a, run_with(folder, "d", replaced)));
  replaced["core"] = 0.5;
  const RunRecord e = run_with(folder, "e", replaced);
  REQUIRE_FALSE(core_answers(e));
  REQUIRE_FALSE(difference(a, e));
  REQUIRE(compare_core_rows(group_of(a), group_of(e)).absent ==
          "a later evaluation replaced the answers of e: its CORE was 0.2500, step-00000040.json "
          "has 0.5000");
  REQUIRE(compare_core_rows(group_of(a), group_of(a)).absent.empty());
}

TEST_CASE("answers to other rows of a task are not compared, though as many") {
  const TempFolder folder;
  const auto with_rows = [&](const std::string& name, const std::string& sha256) {
    Json core = core_of("1100", "1111");
    for (Json& task : core["tasks"]) {
      task["rows_sha256"] = task["label"] == core_labels()[1] ? sha256 : "of both";
    }
    return run_with(folder, name, core);
  };
  const RunRecord a = with_rows("a", "one"), b = with_rows("b", "another"),
                  c = with_rows("c", "one");
  REQUIRE(difference(a, c));
  REQUIRE_FALSE(difference(a, b));
  REQUIRE(compare_core_rows(group_of(a), group_of(b)).absent ==
          "a was scored on other rows of " + core_labels()[1] + " than b");
  const RunRecord old = run_with(folder, "old", core_of("1000", "1011"));
  REQUIRE(difference(old, b));
}

TEST_CASE("scores above other accuracies of guessing are not compared") {
  const TempFolder folder;
  Json v2 = core_of("1000", "1011");
  for (Json& task : v2["tasks"]) {
    if (task["label"] == "commonsense_qa") task["baseline_percent"] = 40.3;
  }
  const RunRecord a = run_with(folder, "a", core_of("1100", "1111")), b = run_with(folder, "b", v2);
  REQUIRE_FALSE(difference(a, b));
  REQUIRE(compare_core_rows(group_of(a), group_of(b)).absent ==
          "a was scored with a guessing accuracy of 0% for commonsense_qa, b with 40.3%");
}

TEST_CASE("runs are asked other questions where any two say so") {
  const TempFolder folder;
  Json old = core_of("1000", "1011"), longer = core_of("1000", "1011");
  old.erase("max_tokens");
  longer["max_tokens"] = 512;
  const RunRecord first = run_with(folder, "first", old),
                  second = run_with(folder, "second", core_of("1100", "1111")),
                  third = run_with(folder, "third", longer);
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&first, &second}).empty());
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&first, &third}).empty());
  const std::string why = "second was scored with prompts of at most 64 tokens, third with 512";
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&first, &second, &third}) == why);

  Cell cells[2];
  ContractTable table;
  table.contract.name = cells[0].contract = cells[1].contract = "steps";
  for (const auto& [i, run] : {std::pair(0, &second), std::pair(1, &third)}) {
    cells[i].model = run->name;
    SummaryRow& row = table.rows.emplace_back();
    row.cell = &cells[i];
    row.planned = 1;
    row.runs = group_of(*run);
  }
  MatrixClaim claim;
  claim.name = "c";
  claim.measure = "core";
  claim.of = "third";
  claim.other = "second";
  const auto results = evaluate_claims({claim}, {table});
  REQUIRE(results.front().verdict == ClaimVerdict::kUndecided);
  REQUIRE(results.front().why ==
          "third was scored with prompts of at most 512 tokens, second with 64");
}

TEST_CASE("the questions of a score are not those of a later evaluation of its step") {
  const TempFolder folder;
  Json later = core_of("1000", "1011");
  later["core"] = 0.5;  // that of the run is 0.25
  later["max_tokens"] = 512;
  RunRecord a = run_with(folder, "a", core_of("1100", "1111")), b = run_with(folder, "b", later);
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&a, &b}).empty());
  b.config.eval.core.emplace().max_tokens = 128;
  b.config.eval.core->bundle = "/data/bundle";
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&a, &b}) ==
          "a was scored with prompts of at most 64 tokens, b with 128");
  write_file_atomic(evaluation_file(a.path, FakeRun::kSteps), "{");
  a = read_run(a.path);
  a.config.eval.core = b.config.eval.core;
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&a, &b}).empty());
  a.config.eval.core->bundle = "/data/other";
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&a, &b}, &RunRecord::path)
              .starts_with(a.path + " was scored on the bundle other, "));
}

TEST_CASE("the questions of a part of CORE are those of its own score too") {
  const TempFolder folder;
  const RunRecord whole = run_with(folder, "whole", core_of("1100", "1111"));
  const auto with_score = [&](const std::string& name, double score) {
    Json part = core_of("11", "11", 2);
    part["max_tokens"] = 512;
    part["core"] = nullptr;
    part["present"]["mean_centered"] = score;
    return run_with(folder, name, part);  // whose score is 0.25
  };
  const RunRecord own = with_score("own", 0.25), later = with_score("later", 0.5);
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&whole, &own}) ==
          "whole was scored with prompts of at most 64 tokens, own with 512");
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&whole, &later}).empty());
}

TEST_CASE("the CORE of a run is read once, with the run") {
  const TempFolder folder;
  Json longer = core_of("1000", "1011");
  longer["max_tokens"] = 512;
  const RunRecord a = run_with(folder, "a", core_of("1100", "1111")),
                  b = run_with(folder, "b", core_of("1000", "1011")),
                  c = run_with(folder, "c", longer);
  for (const RunRecord* run : {&a, &b, &c}) fs::remove_all(run->path);
  REQUIRE(find_run_measure("core")->of(a) == 0.25);
  REQUIRE(core_answers(a));
  REQUIRE(difference(a, b));
  REQUIRE(different_core_questions(std::vector<const RunRecord*>{&a, &c}) ==
          "a was scored with prompts of at most 64 tokens, c with 512");
}

TEST_CASE("an evaluation file that cannot be read leaves a run's score without its rows") {
  const TempFolder folder;
  const RunRecord other = run_with(folder, "other", core_of("1000", "1011")),
                  run = run_with(folder, "run", core_of("1100", "1111"));
  const std::string file = evaluation_file(run.path, FakeRun::kSteps);
  const auto expect_unread = [&](const std::string& says) {
    const RunRecord now = read_run(run.path);
    REQUIRE(find_run_measure("core")->of(now) == 0.25);
    REQUIRE(different_core_questions(std::vector<const RunRecord*>{&now, &other}).empty());
    expect_error([&] { compare_core_rows(group_of(now), group_of(other)); }, says);
  };
  Json without = core_of("1100", "1111");
  without["tasks"][0].erase("baseline_percent");
  for (const std::string& text :
       {std::string("{"), std::string("[]"), Json{{"core", without}}.dump()}) {
    write_file_atomic(file, text);
    expect_unread("step-00000040.json is damaged: ");
  }
  fs::remove(file);
  fs::create_directory(file);
  expect_unread("cannot read " + file);
  fs::remove(file);
  const RunRecord gone = read_run(run.path);
  REQUIRE_FALSE(difference(gone, other));
  REQUIRE(compare_core_rows(group_of(gone), group_of(other)).absent.empty());
}

TEST_CASE("CORE of fewer rows does not replace that of more") {
  const TempFolder folder;
  const RunRecord run = run_with(folder, "a", core_of("1100", "1111"));
  const auto stored = [&] {
    return Json::parse(read_file(evaluation_file(run.path, FakeRun::kSteps)));
  };
  Json less{{"val_loss_nats", 3.5}, {"core", core_of("0", "0", 1)}};
  REQUIRE(record_evaluation(run.path, FakeRun::kSteps, less).kept_core);
  REQUIRE(stored()["core"] == core_of("1100", "1111"));
  REQUIRE(stored()["val_loss_nats"] == 3.5);
  Json as_much{{"core", core_of("0000", "0000")}};
  REQUIRE_FALSE(record_evaluation(run.path, FakeRun::kSteps, as_much).kept_core);
  REQUIRE(stored()["core"] == core_of("0000", "0000"));
}

TEST_CASE("what is not CORE does not replace it, with as many rows") {
  const TempFolder folder;
  const RunRecord run = run_with(folder, "a", core_of("1100", "1111"));
  const auto recorded = [&](const Json& core) {
    return record_evaluation(run.path, FakeRun::kSteps, Json{{"step", 7}, {"core", core}});
  };
  const std::string file = evaluation_file(run.path, FakeRun::kSteps), before = read_file(file);
  Json another = core_of("0000", "0000");
  another["tasks"].push_back(Json{{"label", "of mine"}, {"rows", 10}});
  for (const Json& core : {core_of("0000", "0000", 100), another}) {
    const RecordedEvaluation kept = recorded(core);
    REQUIRE((kept.kept_core && !kept.changed));
    REQUIRE(read_file(file) == before);
  }
  const RecordedEvaluation whole = recorded(core_of("0000", "0000"));
  REQUIRE((!whole.kept_core && whole.changed));
}

TEST_CASE("CORE of some tasks does not replace that of others") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  const auto core = [](const std::vector<std::pair<std::string, int64_t>>& rows_by_task) {
    Json core{{"max_tokens", 64}, {"max_rows_per_task", 0}, {"tasks", Json::array()}};
    for (const auto& [label, rows] : rows_by_task) {
      core["tasks"].push_back({{"label", label}, {"rows", rows}});
    }
    return core;
  };
  const auto kept = [&](const Json& core) {
    return record_evaluation(run.path, FakeRun::kSteps, Json{{"core", core}}).kept_core;
  };
  REQUIRE_FALSE(kept(core({{"copa", 20}, {"piqa", 20}})));
  REQUIRE(kept(core({{"copa", 100}})));
  REQUIRE(kept(core({{"copa", 100}, {"piqa", 10}})));
  REQUIRE(kept(core({{"copa", 100}, {"winograd", 100}})));
  REQUIRE_FALSE(kept(core({{"copa", 20}, {"piqa", 20}, {"winograd", 20}})));
  REQUIRE_FALSE(kept(core({{"copa", 100}, {"piqa", 20}, {"winograd", 20}})));
  Json shorter = core({{"copa", 100}, {"piqa", 20}, {"winograd", 20}});
  shorter["max_tokens"] = 32;
  REQUIRE(kept(shorter));
  REQUIRE_FALSE(kept(core_of("1", "1")));      // all of CORE
  REQUIRE(kept(core({{"another", 100000}})));  // of another bundle
}

TEST_CASE("an evaluation file says who measured CORE, and who the losses") {
  const TempFolder folder;
  const RunRecord run = run_with(folder, "a", core_of("1100", "1111"));  // of an earlier version
  const auto recorded = [&](const char* name, Json measured) {
    measured.update(Json{{"checkpoint", name},
                         {"commit", name},
                         {"device", name},
                         {"recipe", name},
                         {"phase", name}});
    record_evaluation(run.path, FakeRun::kSteps, measured);
    return Json::parse(read_file(evaluation_file(run.path, FakeRun::kSteps)));
  };
  const auto expect_origin = [](const Json& part, const char* name) {
    for (const char* key : {"commit", "device", "recipe", "phase"}) REQUIRE(part.at(key) == name);
  };
  REQUIRE_FALSE(recorded("loss", {{"val_loss_nats", 3.5}})["core"].contains("commit"));
  Json file = recorded("core", {{"core", core_of("1100", "0000")}});
  expect_origin(file["core"], "core");
  expect_origin(file, "loss");
  REQUIRE(file["checkpoint"] == "loss");
  file = recorded("later", {{"val_loss_nats", 3.25}, {"core", core_of("0", "0", 1)}});
  expect_origin(file["core"], "core");
  expect_origin(file, "later");
  file = recorded("fewer rows", {{"core", core_of("0", "0", 1)}});
  expect_origin(file, "later");
  REQUIRE(file["val_loss_nats"] == 3.25);
  REQUIRE(read_run(run.path).name == "a");
  REQUIRE(core_answers(read_run(run.path)));
}

TEST_CASE("a run that went on elsewhere has all its devices") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  const auto launch = [](int64_t first_step, const char* device) {
    return Json{{"first_step", first_step}, {"device", device}};
  };
  Json meta = launch(20, "cuda: X");
  meta["before"] = {launch(0, "cpu"), launch(10, "cuda: X"), launch(20, "never used")};
  write_file_atomic(run.path + "/meta.json", meta.dump());
  REQUIRE(read_run(run.path).device == "cpu, then cuda: X");
  meta = launch(FakeRun::kSteps, "cuda: Y");  // the command again, after the run's end
  meta["before"] = {launch(0, "cpu")};
  write_file_atomic(run.path + "/meta.json", meta.dump());
  REQUIRE(read_run(run.path).device == "cpu");
}

TEST_CASE("a run's machine has the ranks and threads of its launches") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  REQUIRE(machine_of(read_run(run.path)).text() == "an unknown device");
  Json meta{{"first_step", 10}, {"device", "cpu"}, {"cpu", "X"}, {"threads", 4}, {"ranks", 2}};
  const Json first{{"first_step", 0}, {"device", "cpu"}, {"cpu", "X"}, {"threads", 4}};
  meta["before"] = {first};
  write_file_atomic(run.path + "/meta.json", meta.dump());
  const Machine of_both = machine_of(read_run(run.path));
  REQUIRE(of_both.text() == "cpu, X, 1, then 2 ranks, 4 threads");
  write_file_atomic(run.path + "/meta.json", first.dump());
  REQUIRE(machine_of(read_run(run.path)).text() == "cpu, X, 4 threads");
  const auto with = [&](const char* before, const char* last) {
    meta["instructions"] = last;
    meta["before"][0]["instructions"] = before;
    write_file_atomic(run.path + "/meta.json", meta.dump());
    return machine_of(read_run(run.path));
  };
  const Machine amx = with("amx", "amx"), both = with("amx", "avx512");
  REQUIRE(amx.text() == "cpu, X with AMX, 1, then 2 ranks, 4 threads");
  REQUIRE(both.text() == "cpu, X with AMX, then AVX-512, 1, then 2 ranks, 4 threads");
  REQUIRE(!same_machine(amx, both));
  REQUIRE(same_machine(amx, of_both));  // an older version did not record it
  const auto on = [&](int64_t machines) {
    meta["nodes"] = machines;
    write_file_atomic(run.path + "/meta.json", meta.dump());
    return machine_of(read_run(run.path));
  };
  const Machine one = on(1), two = on(2);
  REQUIRE(one.text() == both.text());
  REQUIRE(two.text() ==
          "cpu, X with AMX, then AVX-512, 1, then 2 ranks, 1, then 2 machines, 4 threads");
  REQUIRE(!same_machine(one, two));
  REQUIRE(same_machine(both, two));  // an older version did not record it

  const Machine gpu{.device = "cuda: Y", .cpu = "X", .ranks = "1", .threads = "4"};
  Machine other = gpu;
  other.threads = "8";
  REQUIRE(same_machine(gpu, other));
  other.device = "cpu";
  REQUIRE(!same_machine(gpu, other));
  write_file_atomic(run.path + "/meta.json", first.dump());
  REQUIRE(!same_machine(of_both, machine_of(read_run(run.path))));
}

TEST_CASE("a run knows the import that it began from") {
  const TempFolder folder;
  const FakeRun run{.path = folder / "a", .data = folder / "data"};
  run.write();
  REQUIRE(read_run(run.path).imported_sha256.empty());
  write_file_atomic(run.path + "/imported.json", "{}");
  REQUIRE(read_run(run.path).imported_sha256 == sha256_hex("{}"));
}

}  // namespace assay::test_core_answers
