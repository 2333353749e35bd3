// A cluster as `assay simulate` sees it: the limits of one GPU, and what the links carry. The files
// are lab/cluster/clusters/*.json, embedded in the program; each figure says where it is from.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace assay {

struct ClusterText {
  std::string name, json;
};
const std::vector<ClusterText>& cluster_texts();  // generated

// Of one GPU, in one direction.
struct Link {
  double bytes_per_s = 0;
  double alpha_s = 0;  // of a collective call
  std::string from;    // "assumed: ..." or "measured ..."
};

struct Cluster {
  std::string name, gpu;
  std::string device = {};  // its GPU's name by the driver
  std::string limits_from;
  double memory_bytes = 0;
  double matmul_flop_per_s = 0, copy_bytes_per_s = 0;
  int gpus_per_node = 0;
  Link node, network;
};

// Whether a text can stand in a line of output: no control characters.
bool is_one_line(const std::string& text);

// UserError: no such cluster.
Cluster cluster_of(const std::string& name);
// A cluster of GPUs that the driver calls so; none where no file has them.
std::optional<Cluster> cluster_with(const std::string& device);
// Replaces the links by those of a file: {"node": {"gbyte_per_s": 340, "alpha_us": 20, "from":
// "..."}, "network": {...}}, either of them. UserError: not such a file.
void read_links(Cluster& cluster, const std::string& path);

}  // namespace assay
