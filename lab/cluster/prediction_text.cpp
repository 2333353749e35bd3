#include "lab/cluster/prediction_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory_units.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr double kMs = 1e3;

double tokens_per_s(const ModelPredictions& model, const StepTime& time) {
  return double(model.batch_tokens) / time.step_s;
}
// Of that many times what one GPU does.
double efficiency(const ModelPredictions& model, const Prediction& p, const StepTime& time) {
  const StepTime& one = model.mappings.front().overlapped;
  return one.step_s / (time.step_s * double(p.mapping.ranks()));
}

std::string causes_text(const StepTime& time) {
  std::string text;
  for (const auto& [cause, s] : time.exposed_s) {
    if (kMs * s < 0.05) continue;
    text += strprintf("%s%s %.1f", text.empty() ? "" : ", ", cause.c_str(), kMs * s);
  }
  return text.empty() ? "-" : text;
}

std::string row(const ModelPredictions& model, const Prediction& p) {
  const Mapping& m = p.mapping;
  std::string text = strprintf("%c %4d %5d %7ld %5ld x %-3ld %7.1f%s %8.2f ",
                               is_best(model, p) ? '*' : ' ', m.ranks(), m.shape.nodes,
                               long(m.expert_ranks), long(m.micro_batch), long(m.micro_batches),
                               in_gib(p.memory_bytes), p.fits ? " " : "!", 1e-9 * p.sent_bytes);
  text += p.now ? strprintf("%8.1f", kMs * p.now->step_s) : strprintf("%8s", "-");
  return text + strprintf(" %10.1f %8.1f %9.2f %5.0f%%  %s\n", kMs * p.overlapped.step_s,
                          kMs * p.hidden.step_s, 1e-6 * tokens_per_s(model, p.overlapped),
                          100 * efficiency(model, p, p.overlapped),
                          causes_text(p.overlapped).c_str());
}

ordered_json time_json(const ModelPredictions& model, const Prediction& p, const StepTime& time) {
  ordered_json j{{"step_ms", kMs * time.step_s},
                 {"tokens_per_s", tokens_per_s(model, time)},
                 {"efficiency", efficiency(model, p, time)},
                 {"exposed_ms", ordered_json::object()}};
  for (const auto& [cause, s] : time.exposed_s) j["exposed_ms"][cause] = kMs * s;
  return j;
}

ordered_json prediction_json(const ModelPredictions& model, const Prediction& p) {
  ordered_json j{{"gpus", p.mapping.ranks()},
                 {"nodes", p.mapping.shape.nodes},
                 {"expert_ranks", p.mapping.expert_ranks},
                 {"micro_batch", p.mapping.micro_batch},
                 {"micro_batches", p.mapping.micro_batches},
                 {"memory_bytes", int64_t(p.memory_bytes)},
                 {"fits", p.fits},
                 {"best_that_fits", is_best(model, p)},
                 {"sent_bytes", int64_t(p.sent_bytes)},
                 {"micro_batch_ms", kMs * p.micro_batch_s},
                 {"update_ms", kMs * p.update_s}};
  j["now"] = p.now ? time_json(model, p, *p.now) : ordered_json();
  j["overlapped"] = time_json(model, p, p.overlapped);
  j["hidden"] = time_json(model, p, p.hidden);
  return j;
}

// Where the model is beyond those whose ops were measured; "" where it is not.
std::string note_of(const ModelPredictions& model, const OpTimes& times) {
  if (model.experts <= times.most_experts()) return "";
  if (times.most_experts() == 0) {
    return strprintf(
        "%ld experts, and no profile is of a model with experts: their ops are assumed",
        long(model.experts));
  }
  return strprintf(
      "%ld experts, the shares are of models with at most %ld: the step may take far less than "
      "this (docs/simulate.md)",
      long(model.experts), long(times.most_experts()));
}

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

ordered_json link_json(const Link& link) {
  return {{"gbyte_per_s", 1e-9 * link.bytes_per_s},
          {"alpha_us", 1e6 * link.alpha_s},
          {"from", link.from}};
}

}  // namespace

std::set<std::string> assumed_ops(const std::vector<ModelPredictions>& models) {
  std::set<std::string> ops;
  for (const ModelPredictions& model : models) {
    for (const Prediction& p : model.mappings) ops.insert(p.assumed.begin(), p.assumed.end());
  }
  return ops;
}

bool is_best(const ModelPredictions& model, const Prediction& p) {
  return p.fits &&
         std::none_of(model.mappings.begin(), model.mappings.end(), [&](const Prediction& other) {
           return other.fits && other.mapping.ranks() == p.mapping.ranks() &&
                  other.overlapped.step_s < p.overlapped.step_s;
         });
}

std::string predictions_text(const std::vector<ModelPredictions>& models, const Cluster& cluster,
                             const OpTimes& times) {
  std::string text = strprintf(
      "predicted, not measured: %s, %d a node\n"
      "limits of a GPU: %.0f TFLOP/s, %.2f TB/s; %s\n"
      "shares of them by op: %s\n"
      "ops without a measured share, %.2f assumed: %s\n"
      "in a node: %g GB/s, %s\n"
      "between nodes: %g GB/s, %s\n",
      cluster.gpu.c_str(), cluster.gpus_per_node, 1e-12 * cluster.matmul_flop_per_s,
      1e-12 * cluster.copy_bytes_per_s, cluster.limits_from.c_str(), times.from().c_str(),
      OpTimes::kAssumedShare, joined(assumed_ops(models)).c_str(), 1e-9 * cluster.node.bytes_per_s,
      cluster.node.from.c_str(), 1e-9 * cluster.network.bytes_per_s, cluster.network.from.c_str());
  for (const ModelPredictions& model : models) {
    text += strprintf("\n%s, %ld tokens a step\n", model.name.c_str(), long(model.batch_tokens));
    text += strprintf("  %4s %5s %7s %11s %8s %8s %8s %10s %8s %9s %6s  %s\n", "GPUs", "nodes",
                      "experts", "sequences", "GiB", "sent GB", "now ms", "overlap ms", "hidden",
                      "Mtokens/s", "share", "ms that overlap leaves");
    for (const Prediction& p : model.mappings) text += row(model, p);
    const std::string note = note_of(model, times);
    if (!note.empty()) text += "  note: " + note + "\n";
  }
  return text + "\n* the fastest with as many GPUs that fits; ! does not fit\n" +
         strprintf("ops: those of a step at commit %s; the program's have become fewer since\n",
                   kListedCommit) +
         "now: calls as the program makes them; overlap: gradients leave during backward, by two "
         "levels (not "
         "built);\nhidden: parameters also arrive during the next forward (not built); Mtokens/s "
         "and share of\nperfect scaling: with overlap\n";
}

ordered_json predictions_json(const std::vector<ModelPredictions>& models, const Cluster& cluster,
                              const OpTimes& times) {
  ordered_json j{
      {"status", "predicted, not measured"},
      {"cluster", cluster.name},
      {"gpu", cluster.gpu},
      {"gpus_per_node", cluster.gpus_per_node},
      {"limits",
       {{"matmul_tflop_per_s", 1e-12 * cluster.matmul_flop_per_s},
        {"copy_tb_per_s", 1e-12 * cluster.copy_bytes_per_s},
        {"from", cluster.limits_from}}},
      {"node", link_json(cluster.node)},
      {"network", link_json(cluster.network)},
      {"ops_from", std::string("commit ") + kListedCommit},
      {"shares_from", times.from()},
      {"shares", times.shares()},
      {"assumed_share", {{"share", OpTimes::kAssumedShare}, {"ops", assumed_ops(models)}}},
      {"notes", times.notes()}};
  j["models"] = ordered_json::object();
  for (const ModelPredictions& model : models) {
    ordered_json& of_model = j["models"][model.name];
    of_model["batch_tokens"] = model.batch_tokens;
    const std::string note = note_of(model, times);
    of_model["note"] = note.empty() ? ordered_json() : ordered_json(note);
    of_model["mappings"] = ordered_json::array();
    for (const Prediction& p : model.mappings) {
      of_model["mappings"].push_back(prediction_json(model, p));
    }
  }
  return j;
}

}  // namespace assay
