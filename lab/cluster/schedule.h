// Times of collective calls, and the schedule of a step on two streams: the main one computes, the
// lane carries the calls in their order, each when what it sends is ready.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/cluster/cluster.h"

namespace assay {

// The members of a group: `nodes` times `per_node` GPUs.
struct GroupShape {
  int nodes = 1, per_node = 1;
  int size() const { return nodes * per_node; }
};

// kFlat: every rank sends to every other one, as the program does. kTwoLevels: within the node
// first, then each rank with those of equal number in other nodes, which has 1 / per_node of the
// bytes.
enum class Route { kFlat, kTwoLevels };

// Of an exchange in which each rank sends `bytes` to others.
double exchange_seconds(const Cluster& cluster, const GroupShape& group, double bytes, Route route);
// Of a sum of integers, for which Group counts `bytes`: (size - 1) times the buffer.
double sum_seconds(const Cluster& cluster, const GroupShape& group, double bytes);

struct LaneCall {
  std::string cause;
  double seconds = 0;
  size_t after = 0;  // begins when so many stages of the main stream have ended
};

struct TwoStreams {
  double main_s = 0, end_s = 0;             // of the stages; of all
  std::map<std::string, double> exposed_s;  // by cause, after the main stream has ended
};
// stages: seconds each, one after the other. calls: in the order of the lane, `after` in any.
TwoStreams two_streams(const std::vector<double>& stages, const std::vector<LaneCall>& calls);

}  // namespace assay
