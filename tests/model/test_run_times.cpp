// What a run calls the seconds and the energy of its steps. The counters of energy are read where
// training pauses and goes on, so a test sees there what was computed by then.
#include <chrono>
#include <cstring>
#include <vector>

#include "cuda/profile.h"
#include "engine/run/run.h"
#include "models/decoder/training_memory.h"
#include "tests/catch.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"
#include "tests/model/model_fixture.h"

namespace assay::test_run_times {

namespace {

constexpr int64_t kSequence = 16, kSequences = 4;

Config config_of() {
  Config c = small_config(97);
  c.precision.recipe = "fp32";
  c.run.sequence = kSequence;
  c.run.micro_batch = 2;
  c.run.batch_tokens = kSequences * kSequence;
  c.run.steps = 4;
  c.run.log_every = 2;
  c.schedule.warmup = c.schedule.warmdown = 0;
  return c;
}

struct KeptTimes : SilentRecorder {
  std::vector<StepTimes> of;
  std::vector<uint32_t> hashes;

  void step(Exec, const StepStats& stats, const StepTimes& times, Model&,
            RouterTelemetry&) override {
    of.push_back(times);
    hashes.push_back(stats.hash);
  }
};

int64_t checksums(const Profile& profile) {
  for (const Profile::Entry& e : profile.entries()) {
    if (std::strcmp(e.name, "checksum") == 0) return e.calls;
  }
  return 0;
}

}  // namespace

TEST_CASE("the hash of the parameters is no part of the steps' seconds and energy") {
  const TempFolder folder;
  const std::string shard = folder / "tokens.bin";
  write_shard(shard, counting(0, 2000, 97), 97);
  const Config config = config_of();
  TrainingMemory memory(config, Recipe::kFp32);
  memory.allocate(config, Recipe::kFp32);
  Profile profile;
  Exec on{.threads = 1, .profile = &profile};
  memory.bind(on);
  memory.model->initialise(on, 1);
  memory.model->refresh_weights(on);
  const auto parameters = int64_t(memory.model->parameters().size());
  Loader loader({.files = {shard},
                 .batch_tokens = config.run.batch_tokens,
                 .sequence = kSequence,
                 .micro_batch = config.run.micro_batch,
                 .vocab_size = 97});
  Checkpoints checkpoints(folder / "run", 1, {});
  KeptTimes times;

  using Clock = std::chrono::steady_clock;
  struct Reading {
    Clock::time_point at;
    int64_t checksums;
  };
  std::vector<Reading> readings;
  RunParts parts{.config = config,
                 .on = on,
                 .model = *memory.model,
                 .sums = *memory.sums,
                 .optimizer = *memory.optimizer,
                 .loader = loader,
                 .evaluators = {},
                 .checkpoints = checkpoints,
                 .recorder = times,
                 .probe = {},
                 .mask_id = -1,
                 .energy =
                     [&] {
                       readings.push_back({.at = Clock::now(), .checksums = checksums(profile)});
                       return Energy{.cpu_joules = double(readings.size()), .gpu_joules = 0};
                     },
                 .stop_requested = [] { return false; }};
  REQUIRE(run(parts, {}).steps_done == 4);

  // Before step 1 and after step 2, which is logged; before step 3 and after step 4.
  REQUIRE(readings.size() == 4);
  REQUIRE(readings[1].checksums == 0);
  REQUIRE(readings[2].checksums == parameters);
  REQUIRE(readings[3].checksums == parameters);
  REQUIRE(checksums(profile) == 2 * parameters);
  REQUIRE(times.of.size() == 2);
  double before = 0;
  for (size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    const StepTimes& t = times.of[i];
    const double between =
        std::chrono::duration<double>(readings[2 * i + 1].at - readings[2 * i].at).count();
    REQUIRE(t.step_s > 0);
    REQUIRE(t.step_s < t.train_s - before);
    REQUIRE(t.train_s - before <= between);
    REQUIRE(t.hash_s > 0);
    REQUIRE(t.energy.cpu_joules == double(i + 1));
    REQUIRE(times.hashes[i] != 0);
    before = t.train_s;
  }
}

}  // namespace assay::test_run_times
