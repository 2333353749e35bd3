// What a run calls the seconds and the energy of its steps. The counters of energy are read where
// training pauses and goes on, so a test sees there what was computed by then.
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
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
  std::vector<double> evaluations_s;

  void step(Exec, const StepStats& stats, const StepTimes& times, Model&,
            RouterTelemetry&) override {
    of.push_back(times);
    hashes.push_back(stats.hash);
  }
  void evaluation(int64_t, const Evaluation&, double seconds) override {
    evaluations_s.push_back(seconds);
  }
};

// A small model and its data, ready to train.
struct Place {
  const TempFolder folder;
  const Config config = config_of();
  TrainingMemory memory{config, Recipe::kFp32};
  Profile profile;
  Exec on{.threads = 1, .profile = &profile};
  std::optional<Loader> loader;
  Checkpoints checkpoints{folder / "run", 1, {}};
  KeptTimes times;

  Place() {
    const std::string shard = folder / "tokens.bin";
    write_shard(shard, counting(0, 2000, 97), 97);
    memory.allocate(config, Recipe::kFp32);
    memory.bind(on);
    memory.model->initialise(on, 1);
    memory.model->refresh_weights(on);
    loader.emplace(LoaderConfig{.files = {shard},
                                .batch_tokens = config.run.batch_tokens,
                                .sequence = kSequence,
                                .micro_batch = config.run.micro_batch,
                                .vocab_size = 97});
  }
  RunParts parts() {
    return {.config = config,
            .on = on,
            .model = *memory.model,
            .sums = *memory.sums,
            .optimizer = *memory.optimizer,
            .loader = *loader,
            .evaluators = {},
            .checkpoints = checkpoints,
            .recorder = times,
            .probe = {},
            .mask_id = -1,
            .stop_requested = [] { return false; }};
  }
};

// Takes some time, and finds the same loss.
struct SlowValidation final : Evaluator {
  std::string task() const override { return "val"; }
  bool due(const EvalMoment& at) const override { return at.last || at.steps_done % every() == 0; }
  int64_t every() const override { return 2; }
  std::optional<Evaluation> evaluate(Exec, Model&, const EvalMoment&, const EvalWatch&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return Evaluation{.results = {{.task = "val", .metric = "loss_nats", .value = 3, .n = 1}}};
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
  Place place;
  const auto parameters = int64_t(place.memory.model->parameters().size());
  using Clock = std::chrono::steady_clock;
  struct Reading {
    Clock::time_point at;
    int64_t checksums;
  };
  std::vector<Reading> readings;
  RunParts parts = place.parts();
  parts.energy = [&] {
    readings.push_back({.at = Clock::now(), .checksums = checksums(place.profile)});
    return Energy{.cpu_joules = double(readings.size()), .gpu_joules = 0};
  };
  REQUIRE(run(parts, {}).steps_done == 4);

  // Before step 1 and after step 2, which is logged; before step 3 and after step 4.
  REQUIRE(readings.size() == 4);
  REQUIRE(readings[1].checksums == 0);
  REQUIRE(readings[2].checksums == parameters);
  REQUIRE(readings[3].checksums == parameters);
  REQUIRE(checksums(place.profile) == 2 * parameters);
  const KeptTimes& times = place.times;
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
    REQUIRE(t.other_left_s == 0);  // nothing is evaluated, and no save was measured yet
    before = t.train_s;
  }
}

TEST_CASE("the time that is left has the evaluations to come, at the mean of those before") {
  Place place;
  SlowValidation validation;
  RunParts parts = place.parts();
  parts.evaluators = {&validation};
  REQUIRE(run(parts, {}).steps_done == 4);
  // At steps 0, 2 and 4, and once more at the end, as this recorder keeps none.
  const std::vector<double>& took = place.times.evaluations_s;
  REQUIRE(took.size() == 4);
  REQUIRE(took[0] >= 0.02);
  const std::vector<StepTimes>& of = place.times.of;  // at steps 2 and 4, before their evaluations
  REQUIRE(of.size() == 2);
  REQUIRE(of[0].other_left_s == Approx(2 * took[0]));
  REQUIRE(of[1].other_left_s == Approx((took[0] + took[1]) / 2));
}

}  // namespace assay::test_run_times
