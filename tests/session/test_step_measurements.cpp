#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "engine/run/run_dir.h"
#include "session/eval_file.h"
#include "session/other_guessing.h"
#include "session/step_measurements.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_step_measurements {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string sample_of(int64_t step) {
  return Json{{"step", step}, {"text", "a text"}}.dump() + "\n";
}

CoreTask task_of(const std::string& label, double baseline) {
  CoreTask task;
  task.label = label;
  task.baseline_percent = baseline;
  return task;
}

}  // namespace

TEST_CASE("a run that goes on from a step has no measurements of later ones") {
  const TempFolder folder;
  const std::string run = folder / "run", texts = run + "/" + kSamplesFile;
  const auto nothing = [](const GivenUp& given_up) {
    return given_up.evaluations.empty() && given_up.sample_lines == 0 && given_up.problem.empty();
  };
  REQUIRE(nothing(give_up_measurements_after(run, 25)));
  for (const int64_t step : {0, 25, 30}) {
    write_file_atomic(evaluation_file(run, step), "{}");
    write_file_atomic(evaluation_file(run, step, ".core-1-of-2"), "{}");
  }
  write_file_atomic(run + "/evals/notes.json", "{}");
  write_file_atomic(texts, sample_of(15) + sample_of(25) + sample_of(30) + sample_of(30));

  using Names = std::vector<std::string>;
  const Names of_30 = {"step-00000030.core-1-of-2.json", "step-00000030.json"};
  REQUIRE(nothing(give_up_measurements_after(run, 30)));
  const GivenUp first = give_up_measurements_after(run, 25);
  REQUIRE((first.evaluations == of_30 && first.sample_lines == 2 && first.problem.empty()));
  REQUIRE(names_in(run + "/evals") ==
          Names{"given-up", "notes.json", "step-00000000.core-1-of-2.json", "step-00000000.json",
                "step-00000025.core-1-of-2.json", "step-00000025.json"});
  REQUIRE(evaluation_files(run).size() == 4);
  REQUIRE(read_file(texts) == sample_of(15) + sample_of(25));
  REQUIRE(nothing(give_up_measurements_after(run, 25)));

  write_file_atomic(evaluation_file(run, 30), "{\"of\": \"later\"}");
  const GivenUp second = give_up_measurements_after(run, 0);
  REQUIRE(second.evaluations ==
          Names{"step-00000025.core-1-of-2.json", "step-00000025.json", "step-00000030.json"});
  REQUIRE((second.sample_lines == 2 && second.problem.empty()));
  REQUIRE(names_in(run + "/evals/given-up").size() == 4);
  REQUIRE(read_file(run + "/evals/given-up/step-00000030.core-1-of-2.json") == "{}");
  REQUIRE(read_file(run + "/evals/given-up/step-00000030.json") == "{\"of\": \"later\"}");
  REQUIRE(!fs::exists(texts));
  REQUIRE(fs::exists(evaluation_file(run, 0)));
}

TEST_CASE("what can be taken away of given-up steps goes, beside the first problem") {
  const TempFolder folder;
  const std::string run = folder / "run", texts = run + "/" + kSamplesFile;
  SECTION("a file that cannot be moved") {
    write_file_atomic(evaluation_file(run, 30), "{}");
    write_file_atomic(evaluation_file(run, 40), "{}");
    write_file_atomic(texts, sample_of(15) + sample_of(30));
    fs::create_directories(run + "/evals/given-up/step-00000030.json");
    const GivenUp given_up = give_up_measurements_after(run, 25);
    REQUIRE(given_up.evaluations == std::vector<std::string>{"step-00000040.json"});
    REQUIRE(given_up.sample_lines == 1);
    REQUIRE(given_up.problem.starts_with("cannot move " + run + "/evals/step-00000030.json to "));
    REQUIRE(fs::exists(evaluation_file(run, 30)));
  }
  SECTION("a folder that cannot be read") {
    fs::create_directories(run);
    fs::create_symlink("evals", run + "/evals");  // leads to itself
    write_file_atomic(texts, sample_of(15) + sample_of(30));
    const GivenUp given_up = give_up_measurements_after(run, 25);
    REQUIRE((given_up.evaluations.empty() && given_up.sample_lines == 1));
    REQUIRE(given_up.problem.starts_with("cannot read the folder " + run + "/evals: "));
  }
  REQUIRE(read_file(texts) == sample_of(15));
}

TEST_CASE("two evaluations of a step that end together are both in its file") {
  constexpr int kTimes = 20;
  const TempFolder folder;
  const std::string run = folder / "run";
  std::vector<std::string> problems[2];
  const auto record = [&](int who) {
    for (int i = 0; i < kTimes; ++i) {
      const std::string key = "val_" + std::to_string(who) + "_" + std::to_string(i);
      try {
        record_evaluation(run, 25, Json{{key, i}});
      } catch (const UserError& error) {
        problems[who].push_back(error.what());
      }
    }
  };
  std::thread other(record, 1);
  record(0);
  other.join();
  REQUIRE((problems[0].empty() && problems[1].empty()));
  REQUIRE(Json::parse(read_file(evaluation_file(run, 25))).size() == 2 * kTimes);
}

TEST_CASE("an evaluation file that cannot be read is one error") {
  const TempFolder folder;
  const std::string run = folder / "run", file = evaluation_file(run, 25);
  fs::create_symlink(fs::path(file).filename(), file);  // leads to itself
  expect_error(
      [&] {
        record_evaluation(run, 25, Json{{"val_loss_nats", 3.5}});
      },
      "cannot read " + file + ": ");
}

TEST_CASE("what links among the measurements lead to stays as it is") {
  const TempFolder folder;
  const std::string run = folder / "run", other = folder / "other";
  write_file_atomic(evaluation_file(other, 30), "{}");
  fs::create_directories(run);
  fs::create_directory_symlink("../other/evals", run + "/evals");
  expect_error(
      [&] {
        record_evaluation(run, 30, Json{{"val_loss_nats", 3.5}});
      },
      run + "/evals is a link to ");
  fs::remove(run + "/evals");

  write_file_atomic(evaluation_file(run, 30), "{\"of\": \"this\"}");
  fs::create_directory_symlink("../../other/evals", run + "/evals/given-up");
  REQUIRE(give_up_measurements_after(run, 25).problem.find("given-up is a link") !=
          std::string::npos);
  REQUIRE(read_file(evaluation_file(other, 30)) == "{}");
}

TEST_CASE("a run that goes on with other accuracies of guessing says so") {
  const TempFolder folder;
  const std::string run = folder / "run";
  const std::vector<CoreTask> v1 = {task_of("copa", 50), task_of("commonsense_qa", 20)};
  const std::vector<CoreTask> v2 = {task_of("copa", 50), task_of("commonsense_qa", 40.3)};
  REQUIRE(other_guessing_before(run, v1, 100).empty());
  const auto scored = [&](int64_t step, const std::vector<CoreTask>& tasks) {
    Json core{{"max_tokens", 64}, {"tasks", Json::array()}};
    for (const CoreTask& task : tasks) {
      core["tasks"].push_back(
          {{"label", task.label}, {"rows", 10}, {"baseline_percent", task.baseline_percent}});
    }
    record_evaluation(run, step, Json{{"core", core}});
  };
  scored(10, v2);
  scored(25, v1);
  record_evaluation(run, 30, Json{{"val_loss_nats", 3.5}});
  write_file_atomic(evaluation_file(run, 40), "{");
  REQUIRE(other_guessing_before(run, v1, 50).empty());
  REQUIRE(other_guessing_before(run, v2, 50) ==
          "CORE before step 26 has a guessing accuracy of 20% for commonsense_qa, the bundle has "
          "40.3%: scores before and after it are not comparable");
  REQUIRE(other_guessing_before(run, v2, 20).empty());  // later steps are made again
  REQUIRE(other_guessing_before(run, {task_of("piqa", 50)}, 50).empty());

  // It only warns: evaluations that cannot be read end no run.
  fs::remove_all(run + "/evals");
  fs::create_symlink("evals", run + "/evals");  // leads to itself
  REQUIRE(other_guessing_before(run, v2, 50).empty());
}

}  // namespace assay::test_step_measurements
