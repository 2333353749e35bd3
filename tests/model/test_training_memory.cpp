// If a training run does not fit, the error names the micro-batch that would.
#include "base/check.h"
#include "cuda/context.h"
#include "models/decoder/training_memory.h"
#include "tests/catch.h"

namespace assay::test_training_memory {

namespace {

int64_t free_bytes = 0;  // free memory of the simulated GPU

const gpu::Memory kTooSmall{.allocate = nullptr,
                            .release = nullptr,
                            .available = [] { return free_bytes; },
                            .copy = nullptr,
                            .wait = nullptr,
                            .done = nullptr};

Config config_of(int64_t micro_batch) {
  Config config;
  config.model.hidden = 64;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.ffn = 128;
  config.model.vocab_size = 512;
  config.run.sequence = 64;
  config.run.batch_tokens = 64 * 24;
  config.run.micro_batch = micro_batch;
  return config;
}

int64_t planned(int64_t micro_batch, const gpu::Context& gpu) {
  const TrainingMemory memory(config_of(micro_batch), Recipe::kBf16, {.backend = Backend::kGpu});
  return int64_t(memory.plan.bytes_on(&gpu));
}

std::string hint_with(int64_t bytes, gpu::Context& gpu) {
  free_bytes = bytes;
  const Config config = config_of(24);
  TrainingMemory memory(config, Recipe::kBf16, {.backend = Backend::kGpu});
  try {
    memory.allocate(config, Recipe::kBf16, &gpu);
  } catch (const UserError& error) {
    REQUIRE(std::string(error.what()).find("the GPU has") != std::string::npos);
    return error.hint();
  }
  return "";
}

}  // namespace

TEST_CASE("too little memory names the largest micro-batch that fits") {
  gpu::Context gpu;
  gpu.memory = &kTooSmall;
  // Of the divisors of 24, 12 fits exactly beside what is left free; with one byte less, 8 fits.
  const int64_t left = gpu::kTakenLater, twelve = left + planned(12, gpu);
  REQUIRE(planned(8, gpu) < planned(12, gpu));
  REQUIRE(hint_with(twelve, gpu).rfind("run.micro_batch 12 is the largest", 0) == 0);
  REQUIRE(hint_with(twelve - 1, gpu).rfind("run.micro_batch 8 is the largest", 0) == 0);
  REQUIRE(hint_with(left + planned(1, gpu) - 1, gpu).find("no run.micro_batch is small enough") !=
          std::string::npos);
}

}  // namespace assay::test_training_memory
