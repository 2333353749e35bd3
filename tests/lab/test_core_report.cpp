#include <cmath>
#include <functional>

#include "base/check.h"
#include "base/file.h"
#include "eval/core_score.h"
#include "lab/runs/core_parts.h"
#include "lab/runs/core_report.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_core_report {
namespace {

using Json = nlohmann::ordered_json;

// Of so many rows, half of them right.
CoreTaskResult half_right(const std::string& label, int64_t rows, double baseline) {
  CoreTaskResult task;
  task.label = label;
  task.rows = rows;
  task.baseline_percent = baseline;
  for (int64_t i = 0; i < rows; ++i) task.add_answer(i % 2 == 0);
  return task;
}

CoreReport report_of(const std::vector<CoreTaskResult>& tasks) {
  CoreReport report;
  report.bundle = "bundle";
  report.tasks = tasks;
  report.seconds.assign(tasks.size(), 1.0);
  return report;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a bundle of other tasks has no CORE, and none of its parts") {
  CoreReport report;
  report.bundle = "trimmed";
  for (const char* label : {"copa", "piqa", "winograd"}) {
    CoreTaskResult task;
    task.label = label;
    task.add_answer(true);
    report.tasks.push_back(task);
    report.seconds.push_back(1);
  }
  const std::string text = core_text(report);
  REQUIRE(text.find("mean of 3 of 3 tasks: 1.0000") != std::string::npos);
  REQUIRE(text.find("This is not CORE: the tasks of trimmed are not its 22") != std::string::npos);
  REQUIRE(text.find("CORE-1") == std::string::npos);
  REQUIRE_FALSE(report.complete());
  const Json json = core_json(report);
  REQUIRE(json["core"].is_null());
  REQUIRE(json["subsets"].empty());
  REQUIRE(json["present"]["mean_centered"] == 1);
  REQUIRE_FALSE(is_whole_core(json));
}

TEST_CASE("a mean of tasks without a scored row is none") {
  const CoreReport report = report_of({half_right("copa", 4, 50), half_right("piqa", 0, 50)});
  REQUIRE(has(core_text(report), "\nmean of 2 of 2 tasks: none, a task has no scored row\n"));
}

TEST_CASE("prompt tokens/s of several ranks are of the time that passed") {
  CoreReport report;
  report.tasks.resize(2);
  report.seconds = {4, 6};
  report.work.prompt_tokens = 1000;
  REQUIRE(core_text(report).find(" in 10.0 s: 100 prompt tokens/s;") != std::string::npos);
  report.passed_s = 5;
  REQUIRE(
      core_text(report).find(" in 5.0 s (10.0 s of all ranks together): 200 prompt tokens/s;") !=
      std::string::npos);
}

TEST_CASE("a score says of which version of CORE its accuracies of guessing are") {
  const auto report = [](double commonsense_qa, double lsat) {
    return report_of({half_right("copa", 10, 50), half_right("commonsense_qa", 10, commonsense_qa),
                      half_right("agi_eval_lsat_ar", 10, lsat)});
  };
  const CoreReport v1 = report(20, 20), v2 = report(40.3, 25), own = report(20, 25);
  const std::string of_v1 = strprintf("%.4f +- ", (0.375 + 0.375) / 3);
  const std::string of_v2 = strprintf("%.4f +- ", (0.097 / 0.597 + 1 / 3.) / 3);
  REQUIRE(has(core_text(v1), "\nGuessing is as in CORE v1; as in v2 the score is " + of_v2));
  REQUIRE(has(core_text(v2), "\nGuessing is as in CORE v2; as in v1 the score is " + of_v1));
  const std::string text = core_text(own);
  REQUIRE(has(text, "\nGuessing is as in no version of CORE; as in v1 the score is " + of_v1));
  REQUIRE(has(text, "; as in v2 the score is " + of_v2));
  REQUIRE(core_json(v1)["guessing"] == "v1");
  REQUIRE(core_json(v2)["guessing"] == "v2");
  REQUIRE(core_json(own)["guessing"] == "other");
  for (const CoreReport* one : {&v1, &v2, &own}) {
    const Json versions = core_json(*one)["versions"];
    REQUIRE(versions["v1"]["mean_centered"].get<double>() == Approx(0.25));
    REQUIRE(versions["v2"]["mean_centered"] == core_json(v2)["present"]["mean_centered"]);
  }

  const CoreReport both = report_of({half_right("copa", 10, 50), half_right("boolq", 10, 62)});
  REQUIRE(core_json(both)["guessing"] == "v1 and v2");
  REQUIRE(!has(core_text(both), "Guessing"));
  const CoreReport none = report_of({half_right("copa", 10, 50), half_right("of mine", 10, 50)});
  REQUIRE(core_json(none)["guessing"] == "other");
  REQUIRE(core_json(none)["versions"].empty());
  REQUIRE(!has(core_text(none), "Guessing"));
}

TEST_CASE("prompts that lost their beginning are told, and added up over parts") {
  CoreReport report = report_of({half_right("copa", 4, 50), half_right("piqa", 4, 50)});
  report.work.prompts = 1600;
  REQUIRE(!has(core_text(report), "lost their beginning"));
  REQUIRE(core_json(report)["cut_prompts"] == 0);
  report.tasks[1].cut_prompts = 1234;
  REQUIRE(has(core_text(report), "\n1,234 of 1,600 prompts lost their beginning: piqa 1,234\n"));
  report.tasks[0].cut_prompts = 2;
  REQUIRE(has(core_text(report),
              "\n1,236 of 1,600 prompts lost their beginning: copa 2, piqa 1,234\n"));
  const Json json = core_json(report);
  REQUIRE(json["cut_prompts"] == 1236);
  REQUIRE(json["tasks"][1]["cut_prompts"] == 1234);

  const TempFolder folder;
  const auto written = [&](int64_t index, bool old) {
    CoreReport half = report_of({half_right("copa", 2, 50), half_right("piqa", 2, 50)});
    for (CoreTaskResult& task : half.tasks) {
      task.rows = 4;
      task.cut_prompts = index + 1;
    }
    Json part = core_part_json(half, {.index = index, .count = 2});
    if (old) {
      for (Json& task : part["tasks"]) task.erase("cut_prompts");
    }
    const std::string file = folder / (std::to_string(index) + ".json");
    write_file_atomic(file, part.dump());
    return file;
  };
  const std::string first = written(0, false);
  const CoreReport whole = merge_core_parts({first, written(1, false)});
  REQUIRE(whole.tasks[0].cut_prompts == 3);
  REQUIRE(whole.cut_prompts() == 6);
  const CoreReport mixed = merge_core_parts({first, written(1, true)});
  REQUIRE(!mixed.cut_prompts());
  REQUIRE(!core_json(mixed).contains("cut_prompts"));
  REQUIRE(!has(core_text(mixed), "lost their beginning"));
}

TEST_CASE("damaged parts are refused, each by its name") {
  const TempFolder folder;
  const std::string file = folder / "part.json";
  const Json sound = core_part_json(
      report_of({half_right("copa", 4, 50), half_right("piqa", 4, 50)}), {.index = 0, .count = 1});
  const auto refused = [&](const std::string& says, const std::function<void(Json&)>& damage) {
    Json part = sound;
    damage(part);
    write_file_atomic(file, part.dump());
    expect_error([&] { merge_core_parts({file}); }, file + " is damaged: " + says);
  };
  refused("it has no tasks", [](Json& part) { part["tasks"] = Json::array(); });
  refused("it has no tasks", [](Json& part) { part["tasks"] = "all"; });
  refused("two tasks have the label copa", [](Json& part) { part["tasks"][1]["label"] = "copa"; });
  for (const int percent : {100, -1}) {
    refused("baseline_percent is " + std::to_string(percent),
            [&](Json& part) { part["tasks"][1]["baseline_percent"] = percent; });
  }
  for (const char* share : {"1/1x", " 1/1", "+1/1", "1/ 1", "1/", "1", "/1", "", "0/1", "2/1"}) {
    refused("'" + std::string(share) + "' is not a part I/N",
            [&](Json& part) { part["core_part"] = share; });
  }
  write_file_atomic(file, sound.dump());
  REQUIRE(merge_core_parts({file}).tasks.size() == 2);
}

}  // namespace assay::test_core_report
