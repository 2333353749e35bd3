// What a run's checkpoints take on disk, counted by hand.
#include <filesystem>

#include "base/check.h"
#include "models/audit/checkpoint_disk.h"
#include "tests/catch.h"

namespace assay::test_checkpoint_disk {
namespace {

Config small() {
  Config c;
  c.model.hidden = 64, c.model.layers = 2, c.model.heads = 2, c.model.ffn = 128;
  c.model.vocab_size = 512;
  c.run = {.steps = 1000, .batch_tokens = 1024, .sequence = 64, .micro_batch = 8};
  return c;
}

int64_t most(const Config& config) {
  return checkpoint_disk(config, 1).most;
}
int64_t kept(const Config& config) {
  return checkpoint_disk(config, 1).kept;
}

}  // namespace

TEST_CASE("a checkpoint has the masters and what the optimizer keeps of them") {
  // Embedding and head, two layers: qkv, out, gate and up, down; five norms.
  const int64_t matrices = 2 * 512 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128);
  Config config = small();
  const int64_t adamw = checkpoint_bytes(config, Recipe::kFp32);
  REQUIRE(adamw % 12 == 0);
  REQUIRE(adamw / 12 >= matrices);
  REQUIRE(adamw / 12 <= matrices + 5 * 64 + 4 * 64);
  config.run.micro_batch = 1;  // buffers of a step are not saved
  REQUIRE(checkpoint_bytes(config, Recipe::kFp32) == adamw);
  REQUIRE(checkpoint_bytes(config, Recipe::kBf16) == adamw);
}

TEST_CASE("as many checkpoints lie on the disk as the configuration keeps, and one more") {
  Config config = small();
  REQUIRE((kept(config) == 2 && most(config) == 3));
  config.run.keep_checkpoints = 5;
  REQUIRE((kept(config) == 5 && most(config) == 6));
  config.run.checkpoint_minutes = 0;  // those of a run that is stopped again and again
  REQUIRE((kept(config) == 5 && most(config) == 6));
  config.run.keep_best = true;
  REQUIRE((kept(config) == 6 && most(config) == 7));
  config.run.keep_best = false;
  config.run.keep_checkpoints = 2;
  config.run.checkpoint_every = 500;
  REQUIRE((kept(config) == 2 && most(config) == 3));
  config.run.checkpoint_minutes = 5;  // one by time beside them
  REQUIRE((kept(config) == 2 && most(config) == 4));
}

TEST_CASE("milestones and landings are never deleted") {
  Config config = small();
  config.run.milestone_every = 100;
  REQUIRE(kept(config) == 10 + 2);
  config.contract.landings = {0.1, 0.25, 1.0};  // the first and last are milestones
  REQUIRE(kept(config) == 11 + 2);
  config.run.milestone_every = 0;
  REQUIRE(kept(config) == 3 + 2);
  config.contract.kind = ContractKind::kSeconds;  // its steps are not known
  config.contract.coefficient = 60;
  REQUIRE(kept(config) == 3 + 2);
}

TEST_CASE("a folder's disk is known before the folder is there") {
  const std::string there = std::filesystem::temp_directory_path().string();
  const std::optional<int64_t> free = free_disk_bytes(there + "/no/such/folder");
  REQUIRE(free.has_value());
  REQUIRE(*free > 0);
  REQUIRE(free_disk_bytes("/proc").value_or(0) == 0);
  REQUIRE(checkpoint_disk_text({.each = 1 << 20, .kept = 2, .most = 3}) ==
          "1.0 MiB each, at most 3 at a time: 3.0 MiB");
  const CheckpointDisk absurd{.each = int64_t{1} << 40, .kept = 0, .most = int64_t{1} << 40};
  REQUIRE(absurd.bytes_of(absurd.most) == INT64_MAX);
}

}  // namespace assay::test_checkpoint_disk
