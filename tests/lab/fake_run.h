// Writes a run directory as training leaves it, without training: configuration, telemetry of 40
// steps with two MoE layers, one checkpoint, meta.json; its shards are in a separate folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "data/sha256.h"
#include "engine/run/checkpoint.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/telemetry.h"

namespace assay {

struct FakeRun {
  static constexpr int64_t kSteps = 40;

  std::string path;          // the run
  std::string data;          // folder of its shards
  double loss = 4.25;        // of the last evaluation; that at step 20 is 0.25 lower
  double step_loss = 5.0;    // of every step
  int64_t window = 100;      // telemetry.window
  int64_t planned = kSteps;  // run.steps

  void write() const {
    Config config;
    config.model.layers = 3;
    config.model.moe = MoeConfig();
    config.model.moe->experts = 4;
    config.model.moe->first_dense_layers = 1;
    config.run.steps = planned;
    config.run.target_loss = 4.1;
    config.telemetry.window = window;
    config.data.train = {data + "/t.bin"};
    config.data.val = {data + "/v.bin"};
    make_folders(data);
    write_file_atomic(data + "/t.bin", "training tokens");
    write_file_atomic(data + "/v.bin", "validation tokens");
    const RunDir run(path, RunDir::Start::kContinue);
    run.write_config(config);
    write_telemetry();
    write_checkpoint();
    write_meta();
  }

 private:
  void write_telemetry() const {
    Telemetry telemetry(path + "/telemetry.db", {.scalars = {"train_loss_nats", "hash", "train_s"},
                                                 .spans = {"step"},
                                                 .layers = {1, 2},
                                                 .experts = 4});
    for (int64_t step = 1; step <= kSteps; ++step) {
      StepRecord& r = telemetry.begin_step(step);
      r.scalars = {step_loss, double(step * 7), 0.5 * double(step)};
      r.spans_ms[0] = 500;
      for (size_t m = 0; m < 2; ++m) {
        const double load = m == 1 && step > 30 ? 0.95 : 0.5;  // layer 2 saturates after step 30
        r.router[m].step.max_load_norm = load;
        r.router[m].window.max_load_norm = load;
        r.router[m].window.active_norm = m == 1 ? 0.75 : 1;
        for (int64_t e = 0; e < 4; ++e) r.layer_counts(int64_t(m), 4)[e] = uint32_t(step + e);
      }
      telemetry.commit();
      if (step == 20) telemetry.evals(step, {{"val", "loss_nats", loss - 0.25, 4096}});
      if (step == 40) telemetry.evals(step, {{"val", "loss_nats", loss, 4096}});
    }
    telemetry.event(kSteps, "end", "steps");
  }

  void write_checkpoint() const {
    std::vector<float> weight(100, float(loss));
    const std::vector<TensorRef> tensors = {
        {.name = "weight", .dtype = DType::kF32, .shape = {100}, .data = weight.data()}};
    TrainingState state;
    state.step = kSteps;
    Checkpoints(path, 1, {}).save(state, tensors, tensors);
  }

  void write_meta() const {
    nlohmann::json meta;
    meta["commit"] = "0123456789abcdef";
    meta["program_sha256"] = sha256_hex("program");
    meta["host"] = "somewhere";
    meta["first_step"] = 0;
    for (const char* name : {"/t.bin", "/v.bin"})
      meta["data_sha256"][data + name] = sha256_file(data + name);
    write_file_atomic(path + "/meta.json", meta.dump(1));
  }
};

}  // namespace assay
