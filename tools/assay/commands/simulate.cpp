// assay simulate: arguments; lab/cluster computes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "engine/config/paths.h"
#include "lab/cluster/prediction_text.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"
#include "tools/assay/training_plan.h"

namespace assay {
namespace {

struct SimulateArguments {
  std::vector<std::string> configs, sets;
  std::string cluster = "h200x8", measured, links;
  std::vector<int> nodes = {1};
  std::vector<int64_t> expert_ranks;  // none: those of each configuration
  bool json = false;
};

// The name of the file, or its whole path beside another one of that name.
std::string name_of(const std::string& path, const std::vector<std::string>& all) {
  const auto stem = [](const std::string& one) {
    return std::filesystem::path(one).stem().string();
  };
  const auto same = std::count_if(all.begin(), all.end(),
                                  [&](const std::string& one) { return stem(one) == stem(path); });
  return same > 1 ? path : stem(path);
}

// The numbers of expert ranks to predict. Beside models that have experts a dense one may stand,
// which has no row of more than one.
std::vector<int64_t> expert_ranks_of(const Config& config, const std::string& name,
                                     const SimulateArguments& a) {
  std::vector<int64_t> all = a.expert_ranks;
  if (all.empty()) all = {config.parallel.expert_ranks};
  if (config.model.moe) return all;
  std::string left_out;
  for (const int64_t ranks : all) {
    if (ranks > 1) left_out += (left_out.empty() ? "" : ", ") + std::to_string(ranks);
  }
  if (!left_out.empty()) {
    std::fprintf(stderr, "note: %s has no experts to share: no row with %s expert ranks\n",
                 name.c_str(), left_out.c_str());
  }
  std::erase_if(all, [](int64_t ranks) { return ranks > 1; });
  return all;
}

ModelPredictions predictions_of(const std::string& path, const SimulateArguments& a,
                                const Cluster& cluster, const OpTimes& times) {
  const Config config = load_run_config(path, a.sets);
  ModelPredictions model{.name = name_of(path, a.configs),
                         .batch_tokens = config.run.batch_tokens,
                         .experts = config.model.moe ? config.model.moe->experts : 0,
                         .mappings = {}};
  model.mappings.push_back(predict(config, mapping_of(config, {}, 1), cluster, times));
  const std::vector<int64_t> shared = expert_ranks_of(config, model.name, a);
  for (const int nodes : a.nodes) {
    for (const int64_t expert_ranks : shared) {
      const Mapping mapping = mapping_of(config, {nodes, cluster.gpus_per_node}, expert_ranks);
      model.mappings.push_back(predict(config, mapping, cluster, times));
    }
  }
  return model;
}

// What is to be known of measurements that the user named.
void tell_notes(const SimulateArguments& a, const std::vector<ModelPredictions>& models,
                const OpTimes& times) {
  for (const std::string& note : times.notes()) {
    std::fprintf(stderr, "note: %s: %s\n", a.measured.c_str(), note.c_str());
  }
  std::string ops;
  for (const std::string& op : assumed_ops(models)) ops += (ops.empty() ? "" : ", ") + op;
  if (a.measured.empty() || ops.empty()) return;
  std::fprintf(stderr, "note: %s has no times of %s: %.2f of the limit is assumed\n",
               a.measured.c_str(), ops.c_str(), OpTimes::kAssumedShare);
}

// Each once, where it is first.
template <typename T>
std::vector<T> each_once(const std::vector<T>& all) {
  std::vector<T> once;
  for (const T& one : all) {
    if (std::find(once.begin(), once.end(), one) == once.end()) once.push_back(one);
  }
  return once;
}

int simulate(const SimulateArguments& a) {
  Cluster cluster = cluster_of(a.cluster);
  if (!a.links.empty()) read_links(cluster, a.links);
  const OpTimes times = OpTimes::read(a.measured);
  std::vector<ModelPredictions> models;
  for (const std::string& path : a.configs) {
    models.push_back(predictions_of(path, a, cluster, times));
  }
  tell_notes(a, models, times);
  if (a.json) {
    print_json(predictions_json(models, cluster, times));
  } else {
    std::cout << predictions_text(models, cluster, times);
  }
  return kExitDone;
}

}  // namespace

void add_simulate_command(Commands& commands) {
  auto a = std::make_shared<SimulateArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "simulate", "predict the step time and memory of models on a cluster that is not there");
  sub->add_option("CONFIG", a->configs, "configuration files")->required();
  add_set_option(sub, a->sets);
  sub->add_option("--cluster", a->cluster, "h200x8 (default), h100x8 or b200x8");
  sub->add_option("--nodes", a->nodes, "numbers of nodes (default: 1)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_between(1, 512));
  sub->add_option("--expert-ranks", a->expert_ranks,
                  "ranks that share the experts of a layer (default: parallel.expert_ranks)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(above_zero());
  sub->add_option("--measured", a->measured,
                  "results.json of tools/gpu_check.sh, for the shares of its limits that each op "
                  "reaches (default: those of one H200, embedded)");
  sub->add_option("--links", a->links, "JSON file with links of your own (docs/simulate.md)");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay simulate models/presets/speedrun/moe-64.yaml                 eight H200\n"
      "  assay simulate models/presets/speedrun/*.yaml --nodes 1,2,4 --expert-ranks 1,8\n"
      "Every figure is predicted, not measured: docs/simulate.md says from what.");
  commands.on_chosen(sub, [a] {
    a->configs = presets_or_paths(a->configs);
    a->nodes = each_once(a->nodes);
    a->expert_ranks = each_once(a->expert_ranks);
    return simulate(*a);
  });
}

}  // namespace assay
