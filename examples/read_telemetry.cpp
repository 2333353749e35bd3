// Reads what a run wrote down: its losses, and where the tokens of each layer went.
//
//   ./read_telemetry FOLDER      (a run's folder, e.g. runs/tiny)
#include <cstdio>
#include <string>

#include "base/check.h"
#include "engine/telemetry/reader.h"

using namespace assay;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: read_telemetry FOLDER\n");
    return 1;
  }
  try {
    const TelemetryReader run(telemetry_file(argv[1]));
    for (const StepValue& loss : run.scalar("train_loss_nats")) {
      if (loss.step % 10 == 0) std::printf("step %4ld  loss %.4f\n", long(loss.step), loss.value);
    }
    for (const EvalValue& loss : run.eval("val", "loss_nats")) {
      std::printf("step %4ld  validation loss %.4f\n", long(loss.step), loss.value);
    }
    // K * max_load is 1 when one expert is among every token's choices.
    const int64_t last = run.last_step().value_or(0);
    for (const LayerValue& layer : run.router("max_load_norm", last)) {
      std::printf("layer %ld  K * max_load %.3f, assignments by expert:", long(layer.layer),
                  layer.value);
      for (const uint32_t count : run.expert_load(last, layer.layer)) std::printf(" %u", count);
      std::printf("\n");
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return 1;
  }
}
