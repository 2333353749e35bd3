#include "lab/cluster/op_times.h"

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {

namespace {

using nlohmann::json;

// What the profiles of all models have of one op.
struct Sum {
  double measured_s = 0, limit_s = 0;
};

}  // namespace

double seconds_at_limit(const Cost& cost, double flop_per_s, double bytes_per_s) {
  return std::max(cost.flops / flop_per_s, cost.bytes / bytes_per_s);
}

OpTimes OpTimes::read(const std::string& path, const std::string& without) {
  const std::string text = path.empty() ? measured_op_texts().front().json : read_file(path);
  const std::string profile = "profile_";
  OpTimes times;
  std::map<std::string, Sum> sums;
  try {
    const json j = json_or_throw(text);
    const double flops = 1e12 * j.at("limits").at("matmul_tflop_per_s").get<double>();
    const double bytes = 1e12 * j.at("limits").at("copy_tb_per_s").get<double>();
    times.from_ = j.at("limits").at("device").get<std::string>() + ", " +
                  j.at("date").get<std::string>() + ", commit " + j.at("commit").get<std::string>();
    for (const auto& [name, step] : j.at("steps_of_models").items()) {
      if (name.rfind(profile, 0) != 0 || name == profile + without) continue;
      for (const json& row : step.at("profile")) {
        const double s = 1e-3 * row.at("ms").get<double>();
        Cost cost{.bytes = 1e9 * row.at("gbyte_per_s").get<double>() * s,
                  .flops = 1e9 * row.at("gflop_per_s").get<double>() * s};
        const std::string op = row.at("op");
        // The profile times it from outside, without its cost: a float a parameter.
        if (op == "zero gradients") cost.bytes = 4 * step.at("parameters_total").get<double>();
        Sum& sum = sums[op];
        sum.measured_s += s;
        sum.limit_s += seconds_at_limit(cost, flops, bytes);
      }
    }
  } catch (const json::exception& error) {
    throw UserError(
        (path.empty() ? "the embedded measurements" : path) + ": " + json_problem(error),
        "--measured takes a results.json of bash tools/gpu_check.sh");
  }
  if (sums.empty()) {
    throw UserError(
        (path.empty() ? "the embedded measurements" : path) + " has no profile of a step",
        "--measured takes a results.json of bash tools/gpu_check.sh");
  }
  for (const auto& [op, sum] : sums) times.shares_[op] = sum.limit_s / sum.measured_s;
  return times;
}

double OpTimes::seconds(const OpCall& call, const Cluster& cluster) const {
  const auto found = shares_.find(call.op);
  const double share = found == shares_.end() ? kAssumedShare : found->second;
  return double(call.calls) *
         seconds_at_limit(call.cost, cluster.matmul_flop_per_s, cluster.copy_bytes_per_s) / share;
}

double OpTimes::seconds(const std::vector<OpCall>& calls, const Cluster& cluster) const {
  double sum = 0;
  for (const OpCall& call : calls) sum += seconds(call, cluster);
  return sum;
}

}  // namespace assay
