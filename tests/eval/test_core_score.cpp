#include <algorithm>
#include <cmath>

#include "eval/core_score.h"
#include "tests/catch.h"
#include "tests/data/test_data.h"
#include "tests/tolerance.h"

namespace assay::test_core_score {
namespace {

CoreQuestion of(int64_t prompts, int64_t gold) {
  return {.prompts = std::vector<CorePrompt>(size_t(prompts)), .gold = gold, .not_scored = ""};
}

CoreTaskResult task(const std::string& label, double baseline, int64_t right, int64_t rows) {
  CoreTaskResult t;
  t.label = label;
  t.baseline_percent = baseline;
  t.rows = rows;
  t.right.assign(size_t(rows), 0);
  std::fill(t.right.begin(), t.right.begin() + right, uint8_t{1});
  return t;
}

TEST_CASE("the smallest mean wins, and the first of ties") {
  const auto nats = [](double a, double b, double c) {
    return std::vector<PromptScore>{{.nats = a}, {.nats = b}, {.nats = c}};
  };
  REQUIRE(is_right(CoreKind::kMultipleChoice, of(3, 1), nats(2, 1, 3)) == true);
  REQUIRE(is_right(CoreKind::kSchema, of(3, 0), nats(1, 1, 3)) == true);
  REQUIRE(is_right(CoreKind::kMultipleChoice, of(3, 1), nats(1, 1, 3)) == false);
  REQUIRE(!is_right(CoreKind::kMultipleChoice, of(3, 1), nats(1, NAN, 3)).has_value());
  REQUIRE(is_right(CoreKind::kLanguageModeling, of(1, 0), {{.nats = 9, .exact = true}}) == true);
  REQUIRE(is_right(CoreKind::kLanguageModeling, of(1, 0), {{.nats = 0, .exact = false}}) == false);
}

TEST_CASE("accuracies are centred by the guessing baseline, and the score is their mean") {
  const std::vector<CoreTaskResult> tasks = {task("a", 50, 60, 100), task("b", 0, 25, 100),
                                             task("c", 25, 10, 100)};
  REQUIRE(*tasks[0].centered() == Approx(0.2));
  REQUIRE(*tasks[1].centered() == Approx(0.25));
  REQUIRE(*tasks[2].centered() == Approx(-0.2));  // below guessing, not clipped
  REQUIRE(*core_score(tasks).core == Approx(0.25 / 3));
}

// GPT-2 124M's published accuracies, rows and baselines, and the score published with them.
TEST_CASE("published accuracies give the published score") {
  struct Published {
    const char* label;
    int64_t rows;
    double baseline, accuracy;
  };
  const Published gpt2[] = {{"hellaswag_zeroshot", 10042, 25, .3085},
                            {"jeopardy", 2117, 0, .0019},
                            {"bigbench_qa_wikidata", 20321, 0, .2827},
                            {"arc_easy", 2376, 25, .4125},
                            {"arc_challenge", 1172, 25, .2218},
                            {"copa", 100, 50, .60},
                            {"commonsense_qa", 1221, 20, .2244},
                            {"piqa", 1838, 50, .6230},
                            {"openbook_qa", 500, 25, .278},
                            {"lambada_openai", 5153, 0, .3229},
                            {"hellaswag", 10042, 25, .3079},
                            {"winograd", 273, 50, .5788},
                            {"winogrande", 1267, 50, .4862},
                            {"bigbench_dyck_languages", 1000, 0, .155},
                            {"agi_eval_lsat_ar", 230, 20, .2261},
                            {"bigbench_cs_algorithms", 1320, 0, .4197},
                            {"bigbench_operators", 210, 0, .0857},
                            {"bigbench_repeat_copy_logic", 32, 0, .0313},
                            {"squad", 10570, 0, .0583},
                            {"coqa", 7983, 0, .1337},
                            {"boolq", 3270, 62, .5523},
                            {"bigbench_language_identification", 10000, 9.1, .2566}};
  std::vector<CoreTaskResult> tasks;
  std::vector<std::string> labels;
  for (const Published& p : gpt2) {
    tasks.push_back(task(p.label, p.baseline, std::lround(p.accuracy * double(p.rows)), p.rows));
    labels.emplace_back(p.label);
  }
  const CoreScore score = core_score(tasks);
  // An accuracy has the weight 1 / (1 - b / 100), at most 1 / 0.38 and 1.5 on average.
  const double rounding = tol::printed(4, 1.5);
  REQUIRE(*score.core == Approx(0.113891).margin(rounding));
  // Binomial sampling of the rows gives 0.0063.
  REQUIRE(score.standard_error ==
          Approx(0.0063).epsilon(tol::sampled_deviation(kResamples) + 0.01));
  const auto require_of_subset = [&](size_t subset, double v1, double v2) {
    const auto members = *subset_of(tasks, core_subsets()[subset]);
    const auto in_v2 = *as_in_version(members, CoreVersion::kV2);
    REQUIRE(*core_score(members).core == Approx(v1).margin(rounding));
    REQUIRE(*core_score(in_v2).core == Approx(v2).margin(rounding));
  };
  require_of_subset(0, 0.119914, 0.088401);
  require_of_subset(1, 0.134653, 0.110036);
  const auto v2 = *as_in_version(tasks, CoreVersion::kV2);
  REQUIRE(*core_score(v2).core == Approx(0.088110).margin(rounding));
  REQUIRE((is_of_version(tasks, CoreVersion::kV1) && is_of_version(v2, CoreVersion::kV2)));
  REQUIRE((!is_of_version(tasks, CoreVersion::kV2) && !is_of_version(v2, CoreVersion::kV1)));
  REQUIRE(is_core(labels));
  REQUIRE(labels == core_labels());
  CoreTaskResult other = tasks.back();
  other.label = "of_another_bundle";
  tasks.push_back(other);  // is in no mean
  REQUIRE(!as_in_version(tasks, CoreVersion::kV1));
  REQUIRE(subset_of(tasks, core_subsets()[0])->size() == 18);
  REQUIRE(subset_of(tasks, core_subsets()[1])->size() == 16);
  tasks.erase(tasks.end() - 2);
  REQUIRE(!subset_of(tasks, core_subsets()[0]).has_value());
  REQUIRE(subset_of(tasks, core_subsets()[1]).has_value());
  tasks.push_back(tasks.front());
  REQUIRE(subset_of(tasks, core_subsets()[1]).has_value());  // hellaswag is in neither
  tasks.push_back(tasks[1]);
  REQUIRE(!subset_of(tasks, core_subsets()[1]).has_value());  // jeopardy twice
}

TEST_CASE("CORE is the mean of its 22 tasks, and of no others") {
  std::vector<std::string> labels = core_labels();
  REQUIRE(labels.size() == 22);
  std::reverse(labels.begin(), labels.end());
  REQUIRE(is_core(labels));
  labels.push_back(labels.front());
  REQUIRE(!is_core(labels));
  labels.resize(21);
  REQUIRE(!is_core(labels));
  labels.push_back("choice");
  REQUIRE(!is_core(labels));
  REQUIRE(!is_core({}));
  REQUIRE(!subset_of({task("copa", 50, 60, 100)}, core_subsets()[1]).has_value());
}

TEST_CASE("guessing scores about nothing") {
  // Uniform guessing has accuracy 1 / choices; some published baselines differ from it.
  const std::pair<double, double> tasks_by_guess[] = {
      {25, .25}, {0, 0}, {0, 0},    {25, .25}, {25, .25}, {50, .5},  {20, .25}, {50, .5},
      {25, .25}, {0, 0}, {25, .25}, {50, .5},  {50, .5},  {0, 0},    {20, .25}, {0, 0},
      {0, 0},    {0, 0}, {0, 0},    {0, 0},    {62, .5},  {9.1, .25}};
  std::vector<CoreTaskResult> tasks;
  for (const auto& [baseline, accuracy] : tasks_by_guess) {
    tasks.push_back(
        task("t" + std::to_string(tasks.size()), baseline, std::lround(accuracy * 1000), 1000));
  }
  REQUIRE(*core_score(tasks).core == Approx(-0.0007).margin(tol::printed(4)));
}

TEST_CASE("a task without a scored row has no score, and then neither has CORE") {
  std::vector<CoreTaskResult> tasks = {task("a", 50, 60, 100), task("b", 0, 0, 0)};
  REQUIRE(!tasks[1].accuracy().has_value());
  REQUIRE(!core_score(tasks).core.has_value());
  REQUIRE(!core_score({}).core.has_value());
}

TEST_CASE("rows that follow keep their answers and their reasons") {
  CoreTaskResult all, more;
  all.add_answer(true);
  more.add_not_scored(7, "too long");
  more.add_answer(false);
  all.add_rows(more);
  REQUIRE(all.answers == "1-0");
  REQUIRE(all.right == std::vector<uint8_t>{1, 0});
  REQUIRE(all.skipped == more.skipped);
}

}  // namespace
}  // namespace assay::test_core_score
