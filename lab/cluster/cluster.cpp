#include "lab/cluster/cluster.h"

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/suggest.h"
#include "data/json_text.h"

namespace assay {

namespace {

using nlohmann::json;

Link link_of(const json& j) {
  Link link{.bytes_per_s = 1e9 * j.at("gbyte_per_s").get<double>(),
            .alpha_s = 1e-6 * j.at("alpha_us").get<double>(),
            .from = j.at("from").get<std::string>()};
  const bool sane = link.bytes_per_s >= 1e3 && link.bytes_per_s <= 1e15 && link.alpha_s >= 0 &&
                    link.alpha_s <= 1e3;
  if (!sane) {
    throw json::other_error::create(
        501, "gbyte_per_s must be from 1e-6 to 1e6, alpha_us from 0 to 1e9", &j);
  }
  if (!is_one_line(link.from)) {
    throw json::other_error::create(501, "from must be one line without control characters", &j);
  }
  return link;
}

const char* const kForm =
    "links are {\"node\": {\"gbyte_per_s\": 340, \"alpha_us\": 20, \"from\": \"measured ...\"}, "
    "\"network\": {...}}";

// where: the object's place in messages.
void require_known_keys(const json& object, const std::vector<std::string>& known,
                        const std::string& where) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_name(key, known);
    throw UserError(where + ": unknown key " + key,
                    (near.empty() ? "" : "did you mean " + near + "? ") + kForm);
  }
}

}  // namespace

bool is_one_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

Cluster cluster_of(const std::string& name) {
  std::string names;
  for (const ClusterText& text : cluster_texts()) {
    names += (names.empty() ? "" : ", ") + text.name;
    if (text.name != name) continue;
    const json j = json_or_throw(text.json);
    return {.name = name,
            .gpu = j.at("gpu"),
            .device = j.at("device"),
            .limits_from = j.at("limits_from"),
            .memory_bytes = j.at("memory_bytes"),
            .matmul_flop_per_s = 1e12 * j.at("matmul_tflop_per_s").get<double>(),
            .copy_bytes_per_s = 1e12 * j.at("copy_tb_per_s").get<double>(),
            .gpus_per_node = j.at("gpus_per_node"),
            .node = link_of(j.at("node")),
            .network = link_of(j.at("network"))};
  }
  throw UserError("no cluster is called " + name, "--cluster is one of " + names);
}

std::optional<Cluster> cluster_with(const std::string& device) {
  for (const ClusterText& text : cluster_texts()) {
    const Cluster cluster = cluster_of(text.name);
    if (cluster.device == device) return cluster;
  }
  return {};
}

void read_links(Cluster& cluster, const std::string& path) {
  const std::string text = read_file(path);
  try {
    const json j = json_or_throw(text);
    require_known_keys(j, {"node", "network"}, path);
    for (const char* name : {"node", "network"}) {
      if (j.contains(name)) {
        require_known_keys(j[name], {"gbyte_per_s", "alpha_us", "from"}, path + ": " + name);
      }
    }
    if (!j.contains("node") && !j.contains("network")) {
      throw json::other_error::create(501, "neither node nor network", &j);
    }
    if (j.contains("node")) cluster.node = link_of(j["node"]);
    if (j.contains("network")) cluster.network = link_of(j["network"]);
  } catch (const json::exception& error) {
    throw UserError(path + ": " + json_problem(error), kForm);
  }
}

}  // namespace assay
