// Trains a tiny mixture of experts on generated stories, with a callback after each step.
//
//   ./train_tiny [FOLDER]        (default: runs/tiny; the same command again resumes the run)
#include <cstdio>
#include <string>

#include "base/check.h"
#include "engine/config/config.h"
#include "session/training_run.h"

using namespace assay;

namespace {

// As models/presets/*.yaml say it; load_config() of engine/config/yaml.h reads such a file.
Config tiny_config() {
  Config config;
  config.model.hidden = 64;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.ffn = 128;
  config.model.vocab_size = 512;
  config.model.moe.emplace();
  config.model.moe->experts = 4;
  config.model.moe->top_k = 2;
  config.model.moe->expert_ffn = 64;
  config.run.steps = 30;
  config.run.sequence = 64;
  config.run.micro_batch = 8;
  config.run.batch_tokens = 1024;
  config.run.log_every = 10;
  config.eval.every = 15;
  config.eval.tokens = 4096;
  config.optimizer.lr = 3e-3;
  config.data.synth.emplace();
  config.data.synth->train_tokens = 120000;
  config.data.synth->val_tokens = 20000;
  config.data.synth->vocab_size = 512;
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string folder = argc > 1 ? argv[1] : "runs/tiny";
    TrainingRun run(Session(tiny_config(), {.device = "auto"}), {.folder = folder});
    std::printf("%ld parameters, %ld active; %.1f MiB planned\n", long(run.audit().total),
                long(run.audit().active), double(run.plan().total_bytes()) / (1 << 20));
    run.open();
    const RunResult result = run.train({.on_step = [](const StepStats& s) {
      if ((s.step + 1) % 10 != 0) return;
      std::printf("step %ld: loss %.4f nats, gradient norm %.3f\n", long(s.step + 1), s.loss,
                  s.gradient_norm);
    }});
    std::printf("%s after %ld steps: validation loss %.4f nats; %s has telemetry and checkpoints\n",
                run_end_name(result.end), long(result.steps_done), result.val_loss_nats,
                run.dir().path().c_str());
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
