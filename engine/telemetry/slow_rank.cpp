#include "engine/telemetry/slow_rank.h"

#include <algorithm>
#include <map>
#include <vector>

namespace assay {
namespace {

// The lower one of two: at least half of the values are not smaller. Of at least one value.
double median(std::vector<double> values) {
  const auto middle = values.begin() + int64_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<SlowRank> slow_rank(std::span<const RankStepRow> rows) {
  std::map<int64_t, std::vector<double>> waits;  // shares of steps, by rank
  for (const RankStepRow& row : rows) {
    if (row.of.step_ms > 0) waits[row.rank].push_back(row.of.wait_ms / row.of.step_ms);
  }
  if (waits.size() < 2) return std::nullopt;
  std::map<int64_t, double> share;
  for (const auto& [rank, values] : waits) share[rank] = median(values);
  const auto least = std::min_element(
      share.begin(), share.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<double> others;
  for (const auto& [rank, value] : share) {
    if (rank != least->first) others.push_back(value);
  }
  const double waited = median(others) - least->second;
  if (waited <= kSlowRankShare) return std::nullopt;
  return SlowRank{
      .rank = least->first, .share = waited, .steps = int64_t(waits[least->first].size())};
}

}  // namespace assay
