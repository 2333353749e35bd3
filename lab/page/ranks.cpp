#include "lab/page/ranks.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/telemetry/slow_rank.h"
#include "lab/page/series.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// Rows of one step after another, from the end on, as long as steps have equally many: a run may go
// on with other ranks, which then are not the same processes.
std::span<const RankStepRow> of_last_ranks(std::span<const RankStepRow> rows) {
  size_t from = rows.size(), ranks = 0;
  while (from > 0) {
    size_t first = from;
    while (first > 0 && rows[first - 1].step == rows[from - 1].step) --first;
    if (ranks != 0 && from - first != ranks) break;
    ranks = from - first;
    from = first;
  }
  return rows.subspan(from);
}

std::string percent(double share) {
  return strprintf("%.0f%%", 100 * share);
}

// The logged steps that every rank has a median of.
int64_t fewest_steps(const std::vector<RankMedians>& ranks) {
  const auto fewer = [](const RankMedians& a, const RankMedians& b) { return a.steps < b.steps; };
  return std::min_element(ranks.begin(), ranks.end(), fewer)->steps;
}

std::string sentence(const std::vector<RankMedians>& ranks, const std::optional<SlowRank>& slow) {
  if (slow) {
    return strprintf(
        "Rank %ld holds the others up: it waits least, and they wait for it %s of a "
        "step.",
        long(slow->rank), percent(slow->share).c_str());
  }
  if (const int64_t steps = fewest_steps(ranks); steps < kSlowRankSteps) {
    return strprintf("Too few steps are logged to say which rank is slow: %ld, it takes %ld.",
                     long(steps), long(kSlowRankSteps));
  }
  const auto [least, most] = std::minmax_element(
      ranks.begin(), ranks.end(),
      [](const RankMedians& a, const RankMedians& b) { return a.wait_share < b.wait_share; });
  return strprintf(
      "No rank holds the others up by more than %s of a step. Rank %ld waits least "
      "(%s), rank %ld most (%s).",
      percent(kSlowRankShare).c_str(), long(least->rank), percent(least->wait_share).c_str(),
      long(most->rank), percent(most->wait_share).c_str());
}

}  // namespace

Json report_ranks(const TelemetryReader& telemetry, const ReportLimits& limits) {
  const std::vector<RankStepRow> all = telemetry.rank_steps(0, limits.measure_steps);
  const std::span<const RankStepRow> rows = of_last_ranks(all);
  const std::vector<RankMedians> ranks = rank_medians(rows);
  if (ranks.size() < 2) return nullptr;
  const std::optional<SlowRank> slow = slow_rank(ranks);
  Json json;
  json["first_step"] = rows.front().step;
  json["last_step"] = rows.back().step;
  json["steps"] = fewest_steps(ranks);
  json["says"] = sentence(ranks, slow);
  json["slow"] = slow ? Json(slow->rank) : Json();
  json["ranks"] = Json::array();
  for (const RankMedians& one : ranks) {
    Json row;
    row["rank"] = one.rank;
    row["step_ms"] = short_number(one.of.step_ms, kCurveDigits);
    row["wait_ms"] = short_number(one.of.wait_ms, kCurveDigits);
    row["wait_share"] = short_number(one.wait_share, kMeasureDigits);
    row["bytes_sent"] = one.of.bytes_sent;
    row["peak_rss_bytes"] = one.of.peak_rss_bytes;
    json["ranks"].push_back(std::move(row));
  }
  return json;
}

}  // namespace assay
