// The parts of `assay simulate`: schedules computed by hand, the ops of a step against the profiles
// of measured steps, predicted steps and memory against those of one H200.
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "engine/config/yaml.h"
#include "lab/cluster/prediction_text.h"
#include "models/parameters/table.h"
#include "ops/attention.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/op_sums.h"

namespace assay::test_cluster_model {

namespace {

using nlohmann::json;

const char* const kModels[] = {"dense", "moe-64", "moe-256"};

Config preset(const std::string& name) {
  return load_config("models/presets/speedrun/" + name + ".yaml");
}

json results() {
  return json::parse(read_file("bench/results/h200/results.json"));
}

std::vector<ParameterSpec> trained(const ModelConfig& model) {
  std::vector<ParameterSpec> specs;
  for (const ParameterSpec& s : parameter_table(model)) {
    if (s.trained()) specs.push_back(s);
  }
  return specs;
}

OpSums listed(const Config& config) {
  const std::vector<ParameterSpec> specs = trained(config.model);
  const StepOps ops = ops_of_step(config, specs);
  std::vector<OpCall> all = ops.forward;
  for (const BackwardStage& s : ops.backward) all.insert(all.end(), s.ops.begin(), s.ops.end());
  std::vector<int64_t> matrices, vectors;
  for (const ParameterSpec& s : specs) (s.is_matrix() ? matrices : vectors).push_back(s.size());
  const std::vector<OpCall> update = ops_of_update(matrices, vectors);
  all.insert(all.end(), update.begin(), update.end());
  return sums_by_op(all);
}

Cluster round_numbers() {
  return {.name = "round",
          .gpu = "none",
          .limits_from = "made up",
          .memory_bytes = 1e9,
          .matmul_flop_per_s = 100,
          .copy_bytes_per_s = 10,
          .gpus_per_node = 4,
          .node = {.bytes_per_s = 100, .alpha_s = 0.5, .from = "made up"},
          .network = {.bytes_per_s = 10, .alpha_s = 1, .from = "made up"}};
}

// Measured on one H200 (bench/results/h200), by micro-batch in sequences.
struct Measured {
  const char* model;
  int64_t micro_batch;
  double step_ms, memory_bytes;
};

std::vector<Measured> measured_steps() {
  std::vector<Measured> steps;
  const json j = results().at("steps_of_models");
  for (const char* model : kModels) {
    const json& step = j.at(std::string("step_") + model);
    steps.push_back({model, 32, step.at("step_ms_p50"), step.at("memory_bytes")});
  }
  std::istringstream lines(read_file("bench/results/h200/steps.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json step = json::parse(line);
    if (step.at("recipe") != "bf16" || step.at("micro_batches") != 4) continue;
    const std::string path = step.at("model");
    for (const char* model : kModels) {
      if (path != std::string("models/presets/speedrun/") + model + ".yaml") continue;
      steps.push_back({model, 64, step.at("step_ms_p50"), step.at("memory_bytes")});
    }
  }
  return steps;
}

}  // namespace

TEST_CASE("times of calls, by hand") {
  const Cluster c = round_numbers();
  REQUIRE(exchange_seconds(c, {1, 1}, 300, Route::kFlat) == 0);
  REQUIRE(exchange_seconds(c, {1, 4}, 300, Route::kFlat) == Approx(0.5 + 3));
  REQUIRE(exchange_seconds(c, {3, 1}, 300, Route::kFlat) == Approx(1 + 30));
  // Two nodes of four: 7 others, of whom 3 are near. The 4 far ones take longer.
  REQUIRE(exchange_seconds(c, {2, 4}, 700, Route::kFlat) == Approx(1 + 40));
  // 800 bytes of all: 600 move in the node; then a rank sends half of its 200 to its peer.
  REQUIRE(exchange_seconds(c, {2, 4}, 700, Route::kTwoLevels) == Approx(0.5 + 6 + 1 + 10));
  // Four ranks count 3 times 100 bytes; a ring moves them 1.5 times.
  REQUIRE(sum_seconds(c, {1, 4}, 300) == Approx(0.5 + 1.5));
}

TEST_CASE("a schedule of two streams, by hand") {
  // Backward stages end at 2, 3 and 7. The first call runs from 2 to 4, the second from 4 to 5, the
  // third from 7 to 10; the fourth waits for it, to 12.
  const TwoStreams s = two_streams({2, 1, 4}, {{.cause = "a", .seconds = 2, .after = 1},
                                               {.cause = "b", .seconds = 1, .after = 2},
                                               {.cause = "b", .seconds = 3, .after = 3},
                                               {.cause = "c", .seconds = 2, .after = 1}});
  REQUIRE(s.main_s == 7);
  REQUIRE(s.end_s == 12);
  REQUIRE(s.exposed_s == std::map<std::string, double>{{"b", 3}, {"c", 2}});
  // Hidden but for the part of a call that reaches over the end.
  const TwoStreams hidden = two_streams({4, 1}, {{.cause = "a", .seconds = 3, .after = 1}});
  REQUIRE(hidden.end_s == 7);
  REQUIRE(hidden.exposed_s == std::map<std::string, double>{{"a", 2}});
  REQUIRE(two_streams({4, 5}, {{.cause = "a", .seconds = 3, .after = 1}}).exposed_s.empty());
  REQUIRE(two_streams({4}, {}).end_s == 4);
}

TEST_CASE("the listed ops of a step are those of the measured profiles") {
  const json steps = results().at("steps_of_models");
  for (const char* model : kModels) {
    const OpSums ops = listed(preset(model));
    const RunConfig run = preset(model).run;
    size_t found = 0;
    for (const json& row : steps.at(std::string("profile_") + model).at("profile")) {
      const std::string op = row.at("op");
      if (op == "zero gradients") continue;  // timed from outside, without a cost
      CAPTURE(model, op);
      REQUIRE(ops.contains(op));
      const OpCall& call = ops.at(op);
      const double s = 1e-3 * row.at("ms").get<double>();
      REQUIRE(double(call.calls) == row.at("calls").get<double>());
      REQUIRE(call.cost.flops ==
              Approx(1e9 * row.at("gflop_per_s").get<double>() * s).epsilon(1e-6));
      double bytes = 1e9 * row.at("gbyte_per_s").get<double>() * s;
      // The profiles' router also wrote a sum of scores for each token, which nobody read.
      if (op == "router_forward")
        bytes -= 4.0 * double(call.calls * run.micro_batch * run.sequence);
      REQUIRE(call.cost.bytes == Approx(bytes).epsilon(1e-6));
      ++found;
    }
    REQUIRE(found == ops.size());
  }
}

// Bytes that the program of the measurements planned and did not use: dK and dV of attention's
// gradient, which only a CPU keeps in scratch.
double unused_then(const Config& config) {
  const ModelConfig& m = config.model;
  const AttentionShape shape{.batch = config.run.micro_batch,
                             .sequence = config.run.sequence,
                             .heads = m.heads,
                             .kv_heads = m.resolved_kv_heads(),
                             .head_dim = m.resolved_head_dim()};
  return 4 * double(attention_backward_scratch(Backend::kCpu, shape) -
                    attention_backward_scratch(Backend::kGpu, shape));
}

TEST_CASE("measured steps of one H200 are predicted within 7 percent, memory within 1") {
  const Cluster cluster = cluster_of("h200x8");
  const std::vector<Measured> all = measured_steps();
  REQUIRE(all.size() == 6);
  for (const Measured& m : all) {
    CAPTURE(m.model, m.micro_batch);
    Config config = preset(m.model);
    config.run.micro_batch = m.micro_batch;
    // With the shares of all profiles, and with those of the two other models alone.
    for (const std::string without : {"", m.model}) {
      const OpTimes times = OpTimes::read("", without);
      const Prediction p = predict(config, mapping_of(config, {}, 1), cluster, times);
      CAPTURE(without, 1e3 * p.now->step_s, m.step_ms);
      REQUIRE(1e3 * p.now->step_s == Approx(m.step_ms).epsilon(0.07));
      REQUIRE(p.memory_bytes == Approx(m.memory_bytes - unused_then(config)).epsilon(0.01));
      REQUIRE(p.now->step_s == Approx(p.overlapped.step_s));
    }
  }
}

// Its limits were measured on a heated card, 606 TFLOP/s; the cluster's on a cold one, 802.
TEST_CASE("steps measured later are predicted within 7 percent from profiles of their own file") {
  const std::string file = "bench/results/h200/2026-11-27/steps.json";
  const json measured = json::parse(read_file(file));
  REQUIRE(measured.at("limits").contains("heat_s"));
  const Cluster cluster = cluster_of("h200x8");
  const OpTimes times = OpTimes::read(file);
  REQUIRE(times.notes().empty());
  REQUIRE(times.most_experts() == 4096);
  REQUIRE(OpTimes::read("").most_experts() == 256);
  for (const char* model : kModels) {
    const json& step = measured.at("steps_of_models").at(std::string("step_") + model);
    const Config config = preset(model);
    const Prediction p = predict(config, mapping_of(config, {}, 1), cluster, times);
    CAPTURE(model, 1e3 * p.now->step_s);
    REQUIRE(1e3 * p.now->step_s == Approx(step.at("step_ms_p50").get<double>()).epsilon(0.07));
    // What the list has and that program had not.
    REQUIRE(p.assumed == std::set<std::string>{"rope_backward", "swiglu_backward"});
  }
}

TEST_CASE("the router's backward of many experts is the sparse one that the program takes") {
  const json steps =
      json::parse(read_file("bench/results/h200/2026-11-27/steps.json")).at("steps_of_models");
  const Config config = load_config("models/presets/super/one-gpu/baseline.yaml");
  const OpSums ops = listed(config);
  size_t found = 0;
  for (const json& row : steps.at("profile_super-4096").at("profile")) {
    const std::string op = row.at("op");
    if (op != "router_backward" && op != "sparse_linear_backward") continue;
    CAPTURE(op);
    const double s = 1e-3 * row.at("ms").get<double>();
    REQUIRE(ops.contains(op));
    const OpCall& call = ops.at(op);
    REQUIRE(double(call.calls) == row.at("calls").get<double>());
    REQUIRE(call.cost.flops == Approx(1e9 * row.at("gflop_per_s").get<double>() * s).epsilon(1e-6));
    // Since that profile the experts' offsets are counted, too: 16 KB a call.
    REQUIRE(call.cost.bytes == Approx(1e9 * row.at("gbyte_per_s").get<double>() * s).epsilon(1e-4));
    ++found;
  }
  REQUIRE(found == 2);
  REQUIRE(ops.at("linear_wgrad").calls == 48);  // none of the router
}

TEST_CASE("a model beyond the profiled ones has a note, and so have ops without a share") {
  const Config config = load_config("models/presets/super/one-gpu/baseline.yaml");
  const Cluster cluster = cluster_of("h200x8");
  const OpTimes times = OpTimes::read("");
  ModelPredictions model{.name = "super",
                         .batch_tokens = config.run.batch_tokens,
                         .experts = config.model.moe->experts,
                         .mappings = {predict(config, mapping_of(config, {}, 1), cluster, times)}};
  const auto said = [&] { return predictions_text({model}, cluster, times); };
  const char* const note = "note: 4096 experts, the shares are of models with at most 256";
  REQUIRE(said().find(note) != std::string::npos);
  REQUIRE(said().find("0.85 assumed: sparse_linear_backward\n") != std::string::npos);
  nlohmann::ordered_json j = predictions_json({model}, cluster, times);
  REQUIRE(j["models"]["super"]["note"].is_string());
  REQUIRE(j["assumed_share"]["ops"] == nlohmann::ordered_json::array({"sparse_linear_backward"}));
  REQUIRE(j["ops_from"] == "commit f7148fb");
  model.experts = 256;
  REQUIRE(said().find("note:") == std::string::npos);
  j = predictions_json({model}, cluster, times);
  REQUIRE(j["models"]["super"]["note"].is_null());
}

TEST_CASE("profiles of dense models alone say nothing of experts' ops") {
  const TempFolder folder;
  const std::string file = folder / "dense.json";
  json all = json::parse(read_file("bench/results/h200/2026-11-27/steps.json"));
  json& steps = all["steps_of_models"];
  for (const std::string name : {"moe-64", "moe-256", "super-4096"}) {
    steps.erase("profile_" + name);
  }
  write_file_atomic(file, all.dump());
  const OpTimes times = OpTimes::read(file);
  REQUIRE(times.most_experts() == 0);
  const Cluster cluster = cluster_of("h200x8");
  const Config config = preset("moe-64");
  const ModelPredictions model{
      .name = "moe-64",
      .batch_tokens = config.run.batch_tokens,
      .experts = config.model.moe->experts,
      .mappings = {predict(config, mapping_of(config, {}, 1), cluster, times)}};
  REQUIRE(predictions_text({model}, cluster, times)
              .find("note: 64 experts, and no profile is of a model with experts") !=
          std::string::npos);
}

TEST_CASE("mappings") {
  const Config config = preset("moe-64");
  const Mapping m = mapping_of(config, {4, 8}, 8);
  REQUIRE(m.micro_batch == 8);
  REQUIRE(m.micro_batches == 1);
  REQUIRE_THROWS_AS(mapping_of(config, {3, 8}, 1), UserError);
  REQUIRE_THROWS_AS(mapping_of(config, {1, 8}, 3), UserError);
  REQUIRE_THROWS_AS(mapping_of(preset("dense"), {1, 8}, 8), UserError);
  REQUIRE_THROWS_AS(cluster_of("b300x8"), UserError);

  const Cluster cluster = cluster_of("h200x8");
  const OpTimes times = OpTimes::read("");
  ModelPredictions model{.name = "moe-64", .batch_tokens = config.run.batch_tokens, .mappings = {}};
  for (const GroupShape shape : {GroupShape{1, 1}, GroupShape{1, 8}, GroupShape{2, 8}}) {
    model.mappings.push_back(predict(config, mapping_of(config, shape, 1), cluster, times));
  }
  model.mappings.push_back(predict(config, mapping_of(config, {2, 8}, 8), cluster, times));
  // More GPUs: faster, less memory. Calls that overlap are no slower; the network costs.
  for (size_t i = 1; i < 3; ++i) {
    const Prediction &p = model.mappings[i], &fewer = model.mappings[i - 1];
    REQUIRE(p.now->step_s < fewer.now->step_s);
    REQUIRE(p.memory_bytes < fewer.memory_bytes);
    REQUIRE(p.overlapped.step_s < p.now->step_s);
    REQUIRE(p.hidden.step_s <= p.overlapped.step_s);
    REQUIRE(p.sent_bytes > 8 * 0.85 * 755534592);
  }
  REQUIRE_FALSE(model.mappings[3].now.has_value());
  // Ranks that share the experts clear an eighth of their gradients.
  double experts = 0;
  for (const ParameterSpec& s : trained(config.model)) {
    if (s.role == Role::kRoutedExpert) experts += double(s.size());
  }
  const double cleared_s = times.seconds(
      OpCall{"zero gradients", 1, {.bytes = 4 * experts * 7 / 8, .flops = 0}}, cluster);
  REQUIRE(model.mappings[2].update_s - model.mappings[3].update_s > 0.99 * cleared_s);
  REQUIRE(predict(config, mapping_of(config, {4, 8}, 8), cluster, times).memory_bytes <
          predict(config, mapping_of(config, {4, 8}, 1), cluster, times).memory_bytes);
  // What the configuration says of its own ranks belongs to no other mapping.
  Config own = config;
  own.parallel.expert_ranks = 8;
  const Prediction all = predict(own, mapping_of(own, {2, 8}, 1), cluster, times);
  REQUIRE(all.memory_bytes == model.mappings[2].memory_bytes);
  REQUIRE(all.sent_bytes == model.mappings[2].sent_bytes);
  const Prediction shared = predict(own, mapping_of(own, {2, 8}, 8), cluster, times);
  REQUIRE(shared.memory_bytes == model.mappings[3].memory_bytes);
  // Parts are kept where the ranks divide them: their sums need memory and time. Two parts: the
  // first is copied to its level, the second is added to it, and gradients are cleared once more.
  own = config;
  own.parallel.parts = 8;
  const Prediction parts = predict(own, mapping_of(own, {}, 1), cluster, times);
  REQUIRE(parts.memory_bytes > model.mappings[0].memory_bytes);
  own.parallel.parts = 16;
  const Prediction two = predict(own, mapping_of(own, {1, 8}, 1), cluster, times);
  const Prediction& one = model.mappings[1];
  double gradients = 0;
  for (const ParameterSpec& s : trained(config.model)) gradients += 4 * double(s.size());
  const double sums_s =
      times.seconds(OpCall{"carry_sum", 1, {.bytes = 5 * gradients, .flops = 0}}, cluster);
  const double clearing_s =
      times.seconds(OpCall{"zero gradients", 1, {.bytes = gradients, .flops = 0}}, cluster);
  REQUIRE(two.update_s - one.update_s == Approx(sums_s + clearing_s).epsilon(0.01));
  // In each block the counts once, and rows four times: 7 of 8 are other ranks'.
  const MoeConfig& moe = *config.model.moe;
  const Prediction& with_experts = model.mappings[3];
  const Mapping& of_experts = with_experts.mapping;
  const double tokens = double(of_experts.micro_batch * config.run.sequence);
  const double rows_bytes = tokens * double(moe.top_k * config.model.hidden) * 2 * 7 / 8;
  const double a_block =
      exchange_seconds(cluster, {1, 8}, double(moe.experts) * 4 * 7, Route::kFlat) +
      4 * exchange_seconds(cluster, {1, 8}, rows_bytes, Route::kFlat);
  REQUIRE(with_experts.overlapped.exposed_s.at("expert rows") ==
          Approx(double(of_experts.micro_batches * moe_blocks(config.model)) * a_block));
  REQUIRE(is_best(model, model.mappings[2]) != is_best(model, model.mappings[3]));
  const std::string text = predictions_text({model}, cluster, times);
  REQUIRE(text.rfind("predicted, not measured: ", 0) == 0);
  REQUIRE(predictions_json({model}, cluster, times)["status"] == "predicted, not measured");
}

}  // namespace assay::test_cluster_model
