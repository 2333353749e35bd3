#include "lab/cluster/op_times.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"

namespace assay {

namespace {

using nlohmann::json;

const char* const kFile = "--measured takes a results.json of bash tools/gpu_check.sh";

struct Limits {
  double flop_per_s = 0, bytes_per_s = 0;
};

// What the profiles of all models have of one op.
struct Sum {
  double measured_s = 0, limit_s = 0;
  double flops_s = 0;  // at the limit of products
};

std::string line_of(const json& object, const char* key) {
  const std::string text = object.at(key);
  if (!is_one_line(text)) {
    throw json::other_error::create(501, std::string(key) + " is not one line of text", &object);
  }
  return text;
}

// The limits whose shares the profiles have.
Limits limits_of(const json& file, std::vector<std::string>& notes) {
  const json& limits = file.at("limits");
  const std::string device = line_of(limits, "device");
  const Limits own{1e12 * limits.at("matmul_tflop_per_s").get<double>(),
                   1e12 * limits.at("copy_tb_per_s").get<double>()};
  for (const double limit : {own.flop_per_s, own.bytes_per_s}) {
    if (limit > 0 && std::isfinite(limit)) continue;
    throw json::other_error::create(501, "limits must be above 0", &limits);
  }
  if (const std::optional<Cluster> cluster = cluster_with(device)) {
    return {cluster->matmul_flop_per_s, cluster->copy_bytes_per_s};
  }
  notes.push_back("no cluster has limits of " + device +
                  ": shares are of the file's own limits, and those of a heated card are lower "
                  "than the clusters'");
  return own;
}

// The rows of one profile.
void add_profile(const json& step, const Limits& limits, std::map<std::string, Sum>& sums) {
  for (const json& row : step.at("profile")) {
    const double s = 1e-3 * row.at("ms").get<double>();
    Cost cost{.bytes = 1e9 * row.at("gbyte_per_s").get<double>() * s,
              .flops = 1e9 * row.at("gflop_per_s").get<double>() * s};
    const std::string op = line_of(row, "op");
    // The profile times it from outside, without its cost: a float a parameter.
    if (op == "zero gradients") cost.bytes = 4 * step.at("parameters_total").get<double>();
    const double limit_s = seconds_at_limit(cost, limits.flop_per_s, limits.bytes_per_s);
    if (!(s > 0) || !(limit_s > 0) || !std::isfinite(limit_s / s)) {
      throw json::other_error::create(
          501, strprintf("%s: %g ms, %g of its limit", op.c_str(), 1e3 * s, limit_s / s), &row);
    }
    Sum& sum = sums[op];
    sum.measured_s += s;
    sum.limit_s += limit_s;
    sum.flops_s += cost.flops / limits.flop_per_s;
  }
}

// Of the model of a profile; 0: a dense one.
int64_t experts_of(const json& step) {
  for (const json& row : step.at("profile")) {
    if (row.at("op") != "router_forward") continue;
    const double flops = 1e6 * row.at("gflop_per_s").get<double>() * row.at("ms").get<double>();
    const double logits = flops / router_flops_of_logit() / row.at("calls").get<double>();
    const double tokens = step.at("tokens").get<double>() / step.at("micro_batches").get<double>();
    const double experts = logits / tokens;
    return experts < 1e9 ? std::llround(experts) : 0;
  }
  return 0;
}

}  // namespace

double seconds_at_limit(const Cost& cost, double flop_per_s, double bytes_per_s) {
  return std::max(cost.flops / flop_per_s, cost.bytes / bytes_per_s);
}

OpTimes OpTimes::read(const std::string& path, const std::string& without) {
  const std::string text = path.empty() ? measured_op_texts().front().json : read_file(path);
  const std::string file = path.empty() ? "the embedded measurements" : path;
  const std::string profile = "profile_";
  OpTimes times;
  std::map<std::string, Sum> sums;
  try {
    const json j = json_or_throw(text);
    const Limits limits = limits_of(j, times.notes_);
    times.from_ = line_of(j.at("limits"), "device") + ", " + line_of(j, "date") + ", commit " +
                  line_of(j, "commit");
    for (const auto& [name, step] : j.at("steps_of_models").items()) {
      if (name.rfind(profile, 0) != 0 || name == profile + without) continue;
      if (step.at("recipe") != "bf16") continue;  // ops of the same names, other products
      add_profile(step, limits, sums);
      times.most_experts_ = std::max(times.most_experts_, experts_of(step));
    }
  } catch (const json::exception& error) {
    throw UserError(file + ": " + json_problem(error), kFile);
  }
  if (sums.empty()) throw UserError(file + " has no profile of a step in recipe bf16", kFile);
  for (const auto& [op, sum] : sums) {
    const double share = times.shares_[op] = sum.limit_s / sum.measured_s;
    const bool products = sum.flops_s > 0.5 * sum.limit_s;
    if (products && share > 1) {
      times.notes_.push_back(
          strprintf("%s reached %.2f of the limit of products: the limit is "
                    "measured otherwise than the op",
                    op.c_str(), share));
    }
  }
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
