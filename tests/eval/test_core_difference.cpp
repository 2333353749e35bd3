// The paired bootstrap of CORE over rows.
#include <cmath>

#include "eval/core_difference.h"
#include "eval/core_score.h"
#include "tests/catch.h"

namespace assay::test_core_difference {
namespace {

// Rows answered rightly where (row * step) % modulus < rightly.
CoreAnswers answers(const std::string& label, int rows, int step, int modulus, int rightly) {
  CoreAnswers a{.label = label, .baseline_percent = 25, .right = {}};
  for (int row = 0; row < rows; ++row) a.right.push_back((row * step) % modulus < rightly ? 1 : 0);
  return a;
}

}  // namespace

TEST_CASE("the difference of two scores is that of their centred accuracies") {
  const std::vector<CoreAnswers> a = {answers("one", 100, 1, 10, 6), answers("two", 50, 1, 10, 3)};
  const std::vector<CoreAnswers> b = {answers("one", 100, 1, 10, 5), answers("two", 50, 1, 10, 3)};
  const CoreDifference d = core_difference(a, b).value();
  // 0.6 - 0.5 of the first task, 0 of the second, over 1 - 0.25, over two tasks.
  REQUIRE(std::abs(d.mean - 0.1 / 0.75 / 2) < 1e-12);
  REQUIRE(d.low95 < d.mean);
  REQUIRE(d.mean < d.high95);
  // Rows of the first task differ by 1 in a tenth of them: variance 0.1 - 0.01, over 100 rows.
  const double expected = std::sqrt(0.09 / 100) / 0.75 / 2;
  REQUIRE(std::abs(d.standard_error / expected - 1) < 4 / std::sqrt(2.0 * kResamples));
  const CoreDifference opposite = core_difference(b, a).value();
  REQUIRE(opposite.mean == -d.mean);
}

TEST_CASE("models that answer alike do not differ, however uncertain their scores are") {
  const std::vector<CoreAnswers> a = {answers("one", 40, 7, 10, 5)};
  const CoreDifference d = core_difference(a, a).value();
  REQUIRE(d.mean == 0);
  REQUIRE(d.standard_error == 0);
  REQUIRE(d.low95 == 0);
  REQUIRE(d.high95 == 0);
}

TEST_CASE("rows that a model did not score count for neither") {
  std::vector<CoreAnswers> a = {{.label = "one", .baseline_percent = 0, .right = {1, 1, -1, 0}}};
  std::vector<CoreAnswers> b = {{.label = "one", .baseline_percent = 0, .right = {0, 1, 0, 0}}};
  REQUIRE(std::abs(core_difference(a, b)->mean - 1.0 / 3) < 1e-12);
  REQUIRE(std::abs(core_difference(b, a)->mean + 1.0 / 3) < 1e-12);
  a[0].right = {-1, -1, -1, -1};
  REQUIRE(!core_difference(a, b));
}

TEST_CASE("answers to other tasks or other rows are not compared") {
  const std::vector<CoreAnswers> a = {answers("one", 10, 1, 10, 5)};
  REQUIRE(!core_difference(a, {answers("two", 10, 1, 10, 5)}));
  REQUIRE(!core_difference(a, {answers("one", 11, 1, 10, 5)}));
  REQUIRE(!core_difference(a, {}));
  REQUIRE(!core_difference({}, {}));
}

TEST_CASE("the answers of several runs are averaged row by row") {
  const std::vector<CoreAnswers> one = {{.label = "t", .baseline_percent = 0, .right = {1, 0, 1}}};
  const std::vector<CoreAnswers> two = {{.label = "t", .baseline_percent = 0, .right = {0, 0, -1}}};
  const auto mean = mean_answers({one, two}).value();
  REQUIRE(mean[0].right == std::vector<double>{0.5, 0, -1});
  REQUIRE(!mean_answers({}));
  REQUIRE(!mean_answers({one, {{.label = "u", .baseline_percent = 0, .right = {1, 0, 1}}}}));
}

}  // namespace assay::test_core_difference
