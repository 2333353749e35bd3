#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/random.h"
#include "eval/core_bundle.h"
#include "eval/csv.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/data/test_data.h"

namespace assay::test_core_bundle {
namespace {

TEST_CASE("quoted fields hold commas, quotes and line breaks") {
  const auto records = parse_csv("a,\"b,\"\"c\"\"\nd\",\r\n\ne,f,g", "t.csv");
  REQUIRE(records.size() == 2);
  REQUIRE(records[0] == std::vector<std::string>{"a", "b,\"c\"\nd", ""});
  REQUIRE(records[1] == std::vector<std::string>{"e", "f", "g"});
  REQUIRE(parse_csv("\xEF\xBB\xBFTask,b\n", "t.csv")[0] == std::vector<std::string>{"Task", "b"});
  expect_error([] { parse_csv("a\nb,\"c\n", "t.csv"); }, "t.csv:2: this quote is never closed");
}

const CoreTask& labelled(const std::vector<CoreTask>& tasks, const std::string& label) {
  const auto found = std::find_if(tasks.begin(), tasks.end(),
                                  [&](const CoreTask& task) { return task.label == label; });
  REQUIRE(found != tasks.end());
  return *found;
}

TEST_CASE("the published task list is read") {
  const std::string folder = test_data("core");
  if (folder.empty()) return;
  const auto tasks = parse_core_yaml(read_file(folder + "/core.yaml"), "core.yaml");
  REQUIRE(tasks.size() == 22);
  REQUIRE(labelled(tasks, "jeopardy").delimiter == "\nAnswer: ");
  REQUIRE(labelled(tasks, "jeopardy").shots == 10);
  REQUIRE(labelled(tasks, "winograd").kind == CoreKind::kSchema);
  REQUIRE(labelled(read_core_bundle(folder).tasks, "arc_easy").baseline_percent == 25);
}

TEST_CASE("rows of each kind") {
  const auto mc =
      parse_core_rows("{\"query\": \"q\\u00e9\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n\n",
                      CoreKind::kMultipleChoice, "f");
  REQUIRE(mc.size() == 1);
  REQUIRE(mc[0].context == "q\xC3\xA9");
  REQUIRE(mc[0].options == std::vector<std::string>{"a", "b"});
  REQUIRE(mc[0].gold == 1);
  const auto lm = parse_core_rows("{\"context\": \"c\", \"continuation\": \"d\", \"category\": 3}",
                                  CoreKind::kLanguageModeling, "f");
  REQUIRE(lm[0].context == "c");
  REQUIRE(lm[0].continuation == "d");
}

TEST_CASE("bad rows name file, line and what is wrong") {
  struct Row {
    const char *text, *says;
  };
  const std::string good = "{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": 0}\n";
  const Row rows[] = {
      {"{\"query\": \"q\"", "f.jsonl:2: not JSON"},
      {"[1]", "f.jsonl:2: a row is an object, not array"},
      {"{\"choices\": [\"a\"], \"gold\": 0}", "f.jsonl:2: the row has no 'query'"},
      {"{\"query\": 3, \"choices\": [\"a\"], \"gold\": 0}", "f.jsonl:2: 'query' is not a string"},
      {"{\"query\": \"q\", \"gold\": 0}", "f.jsonl:2: the row has no 'choices'"},
      {"{\"query\": \"q\", \"choices\": [], \"gold\": 0}",
       "f.jsonl:2: 'choices' is not a list with items"},
      {"{\"query\": \"q\", \"choices\": [\"a\", 1], \"gold\": 0}",
       "f.jsonl:2: 'choices' has an item that is not a string"},
      {"{\"query\": \"q\", \"choices\": [\"a\"]}", "f.jsonl:2: the row has no 'gold'"},
      {"{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": 1}",
       "f.jsonl:2: 'gold' is 1, but there are 1 options"},
      {"{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": \"0\"}",
       "f.jsonl:2: 'gold' is \"0\", but there are 1 options"},
      {"{\"query\": \"\xFF\", \"choices\": [\"a\"], \"gold\": 0}", "f.jsonl:2: not JSON"},
      {"\n{\"query\": \"q\", \"choices\": [\"a\"], \"gold\": 0}", "f.jsonl:2: an empty line"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    expect_error(
        [&] { parse_core_rows(good + row.text + "\n", CoreKind::kMultipleChoice, "f.jsonl"); },
        row.says);
  }
  expect_error([] { parse_core_rows("\n", CoreKind::kSchema, "f.jsonl"); }, "f.jsonl: no rows");
}

// Removes each key of each kind of row, and gives it another type and null.
TEST_CASE("a row without one of its keys, or with another type, is one error that names the key") {
  using nlohmann::json;
  const std::pair<CoreKind, const char*> kinds[] = {
      {CoreKind::kMultipleChoice, R"({"query": "q", "choices": ["a", "b"], "gold": 1})"},
      {CoreKind::kSchema, R"({"context_options": ["a", "b"], "continuation": "c", "gold": 0})"},
      {CoreKind::kLanguageModeling, R"({"context": "c", "continuation": "d"})"},
  };
  for (const auto& [of_kind, text] : kinds) {
    const auto kind = of_kind;  // a plain name, which a lambda may capture under OpenMP
    const json good = json::parse(text);
    REQUIRE(parse_core_rows(good.dump(), kind, "f").size() == 1);
    for (const auto& [key, value] : good.items()) {
      INFO(core_kind_name(kind) << " " << key);
      const auto refused = [&](const json& row, const std::string& says) {
        expect_error([&] { parse_core_rows(row.dump(), kind, "f.jsonl"); }, says);
      };
      json without = good;
      without.erase(key);
      refused(without, "f.jsonl:1: the row has no '" + key + "'");
      for (const json& other : {json(nullptr), json(1.5), json(json::object()), json(true)}) {
        json changed = good;
        changed[key] = other;
        refused(changed, "f.jsonl:1: '" + key + "' ");
      }
    }
  }
}

TEST_CASE("bad task lists and baselines name the place") {
  struct Row {
    const char *yaml, *says;
  };
  const std::string task =
      "icl_tasks:\n- {label: a, dataset_uri: a.jsonl, num_fewshot: [0], icl_task_type: schema}\n";
  const Row rows[] = {
      {"a: 1", "no list icl_tasks"},
      {"icl_tasks: []", "icl_tasks is empty"},
      {"icl_tasks: [x]", "a task is a section, not \"x\""},
      {"icl_tasks: [{label: a}]", "the task has no dataset_uri"},
      {"icl_tasks: [{label: a, dataset_uri: ../a, num_fewshot: [0], icl_task_type: schema}]",
       "dataset_uri '../a' is not below eval_data"},
      {"icl_tasks: [{label: a, dataset_uri: /dev/zero, num_fewshot: [0], icl_task_type: schema}]",
       "dataset_uri '/dev/zero' is not below eval_data"},
      {"icl_tasks: [{label: a, dataset_uri: a, num_fewshot: [0], icl_task_type: quiz}]",
       "icl_task_type 'quiz' is not one of"},
      {"icl_tasks: [{label: a, dataset_uri: a, num_fewshot: [], icl_task_type: schema}]",
       "num_fewshot of a does not begin with a count"},
      {"icl_tasks: [{label: a, dataset_uri: a, num_fewshot: 3, icl_task_type: schema}]",
       "num_fewshot is \"3\""},
      {"icl_tasks:\n"
       "- {label: a, dataset_uri: a, num_fewshot: [0], icl_task_type: schema}\n"
       "- {label: a, dataset_uri: b, num_fewshot: [5], icl_task_type: schema}\n",
       "core.yaml:3: two tasks have the label a"},
  };
  for (const Row& row : rows) {
    INFO(row.yaml);
    expect_error([&] { parse_core_yaml(row.yaml, "core.yaml"); }, row.says);
  }

  const TempFolder folder;
  expect_error([&] { read_core_bundle(folder.path()); }, "no CORE bundle in ");
  write_file_atomic(folder / "core.yaml", task);
  const auto with_csv = [&](const std::string& csv, const std::string& says) {
    INFO(csv);
    write_file_atomic(folder / "eval_meta_data.csv", csv);
    expect_error([&] { read_core_bundle(folder.path()); }, says);
  };
  with_csv("Task,Random baseline\na,0\n", "no column 'Eval Task'");
  with_csv("Eval Task,Random baseline\na\n", "record 1 has 1 fields");
  with_csv("Eval Task,Random baseline\na,many\n", "'many' is not a percentage below 100");
  with_csv("Eval Task,Random baseline\na,100\n", "'100' is not a percentage below 100");
  with_csv("Eval Task,Random baseline\nb,50\n", "no task a");
  with_csv("Eval Task,Random baseline\na,50\n", "none of the 1 tasks' files exists");
}

TEST_CASE("selected tasks come once, in the bundle's order; the others count as missing") {
  CoreBundle bundle;
  bundle.folder = "here";
  bundle.missing = {"x"};
  for (const char* label : {"a", "b", "c"}) bundle.tasks.emplace_back().label = label;
  REQUIRE(with_tasks(bundle, {}, "--core-tasks").tasks.size() == 3);
  const CoreBundle some = with_tasks(bundle, {"c", "a", "c"}, "--core-tasks");
  REQUIRE(some.tasks.size() == 2);
  REQUIRE(some.tasks[0].label == "a");
  REQUIRE(some.tasks[1].label == "c");
  REQUIRE(some.missing == std::vector<std::string>{"x", "b"});
  for (const char* label : {"chess", "x", ""}) {
    INFO(label);
    expect_error(
        [&] {
          with_tasks(bundle, {"a", label}, "eval.core.tasks");
        },
        std::string("eval.core.tasks: no task ") + label + " with a file in here");
  }
}

TEST_CASE("damaged files are read or refused without a crash") {
  const std::string rows =
      "{\"query\": \"q\\n\", \"choices\": [\"a\", \"b\"], \"gold\": 1}\n"
      "{\"query\": \"\\u00e9\", \"choices\": [\"c\", \"d\"], \"gold\": 0}\n";
  const std::string yaml =
      "icl_tasks:\n- label: a\n  dataset_uri: a.jsonl\n  num_fewshot: [10]\n  icl_task_type: "
      "schema\n  continuation_delimiter: \"\\nA: \"\n";
  RandomSequence random({.seed = 7, .stream = stream_id("core.fuzz")});
  const auto damaged = [&](std::string text) {
    for (uint32_t edits = 1 + random.below(4); edits > 0 && !text.empty(); --edits) {
      const size_t at = random.below(uint32_t(text.size()));
      switch (random.below(3)) {
        case 0:
          text[at] = char(random.below(256));
          break;
        case 1:
          text.erase(at, 1 + random.below(8));
          break;
        default:
          text.insert(at, 1, char(random.below(256)));
          break;
      }
    }
    return text;
  };
  const auto survives = [](const std::function<void()>& parse) {
    try {
      parse();
    } catch (const UserError& e) {
      REQUIRE(std::string(e.what()).find('\0') == std::string::npos);
    }
  };
  for (int i = 0; i < 3000; ++i) {
    survives([&] { parse_core_rows(damaged(rows), CoreKind::kMultipleChoice, "f"); });
    survives([&] { parse_core_yaml(damaged(yaml), "f"); });
    survives([&] { parse_csv(damaged("a,\"b\"\nc,d\n"), "f"); });
  }
}

}  // namespace
}  // namespace assay::test_core_bundle
