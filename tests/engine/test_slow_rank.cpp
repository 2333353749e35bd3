#include <cmath>
#include <utility>

#include "engine/telemetry/slow_rank.h"
#include "tests/catch.h"

namespace assay::test_slow_rank {
namespace {

// Rows of one step of 100 ms, in which rank r waits waits_ms[r].
std::vector<RankStepRow> step_of_ranks(int64_t step, const std::vector<double>& waits_ms) {
  std::vector<RankStepRow> rows;
  for (const double wait : waits_ms) {
    rows.push_back({.step = step,
                    .rank = int64_t(rows.size()),
                    .of = {.step_ms = 100, .wait_ms = wait, .bytes_sent = 1, .peak_rss_bytes = 1}});
  }
  return rows;
}

std::vector<RankStepRow> steps_of_ranks(int64_t steps, const std::vector<double>& waits_ms) {
  std::vector<RankStepRow> rows;
  for (int64_t step = 1; step <= steps; ++step) {
    for (const RankStepRow& row : step_of_ranks(step, waits_ms)) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("no rank is named by a few steps") {
  for (const auto& [steps, named] :
       {std::pair(1, false), std::pair(4, false), std::pair(5, true)}) {
    REQUIRE(slow_rank(rank_medians(steps_of_ranks(steps, {90, 10}))).has_value() == named);
  }
}

TEST_CASE("the rank that waits least is named if the others wait for it") {
  const auto named = [](const std::vector<double>& waits_ms) {
    return slow_rank(rank_medians(steps_of_ranks(kSlowRankSteps, waits_ms)));
  };
  REQUIRE(!slow_rank({}));
  REQUIRE(rank_medians({}).empty());
  REQUIRE(!named({90}));              // one rank
  REQUIRE(!named({40, 40, 40}));      // all of them move bytes
  REQUIRE(!named({40, 31, 40, 40}));  // 9% of the step
  REQUIRE(named({40, 29, 40, 40})->rank == 1);
  REQUIRE(std::abs(named({40, 29, 40, 40})->share - 0.11) < 1e-12);
  REQUIRE(named({50, 30, 10})->rank == 2);
  REQUIRE(std::abs(named({50, 30, 10})->share - 0.2) < 1e-12);
  REQUIRE(!named({10, 12, 90}));  // rank 2 waits for both

  // The median: rank 0 in one step of five does not hide rank 1, nor is it named alone.
  std::vector<RankStepRow> rows;
  for (int64_t step = 1; step <= 5; ++step) {
    const bool other = step == 3;
    for (const RankStepRow& row : step_of_ranks(step, {other ? 5.0 : 70.0, other ? 95.0 : 10.0})) {
      rows.push_back(row);
    }
  }
  REQUIRE(slow_rank(rank_medians(rows))->rank == 1);
  REQUIRE(slow_rank(rank_medians(rows))->steps == 5);
  REQUIRE(std::abs(slow_rank(rank_medians(rows))->share - 0.6) < 1e-12);
  const std::vector<RankMedians> medians = rank_medians(rows);
  REQUIRE(medians.size() == 2);
  REQUIRE(medians[0].of.wait_ms == 70);
  REQUIRE(medians[0].wait_share == 0.7);
  REQUIRE(medians[0].of.step_ms == 100);
  REQUIRE(medians[1].rank == 1);
  REQUIRE(medians[1].steps == 5);
  rows[0].of.peak_rss_bytes = 9;  // the largest, not the median
  rows[1].of.step_ms = 0;         // not measured
  REQUIRE(rank_medians(rows)[0].of.peak_rss_bytes == 9);
  REQUIRE(rank_medians(rows)[1].steps == 4);
  rows[1].of.step_ms = 100;
  for (RankStepRow& row : rows) {
    if (row.step != 3) row.of.wait_ms = 20;
  }
  REQUIRE(!slow_rank(rank_medians(rows)));
}

}  // namespace assay::test_slow_rank
