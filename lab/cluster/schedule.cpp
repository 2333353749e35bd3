#include "lab/cluster/schedule.h"

#include <algorithm>

#include "base/check.h"

namespace assay {

double exchange_seconds(const Cluster& cluster, const GroupShape& group, double bytes,
                        Route route) {
  const double size = group.size(), per_node = group.per_node, nodes = group.nodes;
  if (group.size() == 1) return 0;
  const Link &node = cluster.node, &network = cluster.network;
  if (group.nodes == 1) return node.alpha_s + bytes / node.bytes_per_s;
  if (group.per_node == 1) return network.alpha_s + bytes / network.bytes_per_s;
  if (route == Route::kFlat) {  // both levels at once
    const double inside = bytes * (per_node - 1) / (size - 1);
    return std::max(node.alpha_s, network.alpha_s) +
           std::max(inside / node.bytes_per_s, (bytes - inside) / network.bytes_per_s);
  }
  const double whole = bytes * size / (size - 1);  // what all ranks have of it together
  const double inside = whole * (per_node - 1) / per_node;
  const double between = whole / per_node * (nodes - 1) / nodes;
  return node.alpha_s + inside / node.bytes_per_s + network.alpha_s + between / network.bytes_per_s;
}

double sum_seconds(const Cluster& cluster, const GroupShape& group, double bytes) {
  if (group.size() == 1) return 0;
  const Link& link = group.nodes == 1 ? cluster.node : cluster.network;
  return link.alpha_s + bytes * 2 / double(group.size()) / link.bytes_per_s;  // a ring, both ways
}

TwoStreams two_streams(const std::vector<double>& stages, const std::vector<LaneCall>& calls) {
  std::vector<double> ends{0};
  for (const double s : stages) ends.push_back(ends.back() + s);
  TwoStreams schedule{.main_s = ends.back(), .end_s = ends.back(), .exposed_s = {}};
  double lane = 0;
  for (const LaneCall& call : calls) {
    CHECK(call.after < ends.size(), "a call after stage %zu of %zu", call.after, stages.size());
    const double begin = std::max(lane, ends[call.after]);
    lane = begin + call.seconds;
    const double exposed = lane - std::max(begin, schedule.main_s);
    if (exposed > 0) schedule.exposed_s[call.cause] += exposed;
  }
  schedule.end_s = std::max(schedule.end_s, lane);
  return schedule;
}

}  // namespace assay
