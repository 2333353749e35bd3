#include "engine/telemetry/slow_rank.h"

#include <algorithm>
#include <map>

namespace assay {
namespace {

// The lower one of two: at least half of the values are not smaller. Of at least one value.
template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + int64_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Columns {
  std::vector<double> share, step_ms, wait_ms;
  std::vector<int64_t> bytes_sent, peak_rss_bytes;
};

}  // namespace

std::vector<RankMedians> rank_medians(std::span<const RankStepRow> rows) {
  std::map<int64_t, Columns> by_rank;
  for (const RankStepRow& row : rows) {
    if (!(row.of.step_ms > 0)) continue;
    Columns& of = by_rank[row.rank];
    of.share.push_back(row.of.wait_ms / row.of.step_ms);
    of.step_ms.push_back(row.of.step_ms);
    of.wait_ms.push_back(row.of.wait_ms);
    of.bytes_sent.push_back(row.of.bytes_sent);
    of.peak_rss_bytes.push_back(row.of.peak_rss_bytes);
  }
  std::vector<RankMedians> ranks;
  for (const auto& [rank, of] : by_rank) {
    const int64_t peak = *std::max_element(of.peak_rss_bytes.begin(), of.peak_rss_bytes.end());
    ranks.push_back({.rank = rank,
                     .steps = int64_t(of.share.size()),
                     .wait_share = median(of.share),
                     .of = {.step_ms = median(of.step_ms),
                            .wait_ms = median(of.wait_ms),
                            .bytes_sent = median(of.bytes_sent),
                            .peak_rss_bytes = peak}});
  }
  return ranks;
}

std::optional<SlowRank> slow_rank(std::span<const RankMedians> ranks) {
  const auto few = [](const RankMedians& one) { return one.steps < kSlowRankSteps; };
  if (ranks.size() < 2 || std::any_of(ranks.begin(), ranks.end(), few)) return std::nullopt;
  const RankMedians& least = *std::min_element(
      ranks.begin(), ranks.end(),
      [](const RankMedians& a, const RankMedians& b) { return a.wait_share < b.wait_share; });
  std::vector<double> others;
  for (const RankMedians& one : ranks) {
    if (one.rank != least.rank) others.push_back(one.wait_share);
  }
  const double waited = median(others) - least.wait_share;
  if (waited <= kSlowRankShare) return std::nullopt;
  return SlowRank{.rank = least.rank, .share = waited, .steps = least.steps};
}

}  // namespace assay
