#include "data/loader.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/loader_step.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_loader {
namespace {

constexpr int64_t kVocab = 1000;

// Three shards of 2, 0 and 3 batches of 48 tokens.
struct Files {
  TempFolder folder;
  std::vector<std::string> names = {folder / "a", folder / "b", folder / "c"};
  Files() {
    write_shard(names[0], counting(0, 2 * 48 + 1, kVocab), kVocab);
    write_shard(names[1], counting(300, 48, kVocab), kVocab);
    write_shard(names[2], counting(500, 3 * 48 + 20, kVocab), kVocab);
  }
  LoaderConfig config() const {
    return {.files = names,
            .batch_tokens = 48,
            .sequence = 4,
            .micro_batch = 3,
            .vocab_size = kVocab,
            .say = [](const std::string&) {}};
  }
};

TEST_CASE("batches are the blocks of the shards in order, and wrap") {
  const Files files;
  std::vector<std::string> warnings;
  LoaderConfig config = files.config();
  config.say = [&](const std::string& line) { warnings.push_back(line); };
  Loader loader(config);
  REQUIRE(loader.epochs(5) == 1);
  const int64_t first[] = {0, 48, 500, 548, 596};
  for (int step = 0; step < 12; ++step) {
    const LoaderStep got = read_step(loader);
    REQUIRE(got.token == counting(first[step % 5], 48, kVocab));
    REQUIRE(got.target == counting(first[step % 5] + 1, 48, kVocab));
    REQUIRE(loader.epoch() == step / 5);
    REQUIRE(loader.cursor() == loader.cursor_of(step + 1));
  }
  REQUIRE(warnings.size() == 2);
  REQUIRE(warnings[0].find("epoch 2 begins") != std::string::npos);
}

TEST_CASE("the order does not depend on ranks or micro-batch size") {
  const Files files;
  Loader whole(files.config());
  for (const int ranks : {1, 2, 4})
    for (const int64_t micro_batch : {1, 3}) {
      whole.seek(0);
      std::vector<std::unique_ptr<Loader>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderConfig config = files.config();
        config.rank = rank;
        config.ranks = ranks;
        config.micro_batch = micro_batch;
        parts.push_back(std::make_unique<Loader>(config));
      }
      for (int step = 0; step < 7; ++step) {
        LoaderStep joined;
        int64_t counted = 0;
        for (auto& part : parts) {
          const LoaderStep own = read_step(*part);
          joined.token.insert(joined.token.end(), own.token.begin(), own.token.end());
          joined.target.insert(joined.target.end(), own.target.begin(), own.target.end());
          counted += part->counted_targets(10);
        }
        const LoaderStep want = read_step(whole);
        REQUIRE(joined.token == want.token);
        REQUIRE(joined.target == want.target);
        REQUIRE(counted == whole.counted_targets(10));
        REQUIRE(whole.counted_targets(10) == (step % 5 == 0 ? 47 : 48));
        REQUIRE(whole.counted_targets(-1) == 48);
      }
    }
}

TEST_CASE("seek repeats the steps from a cursor") {
  const Files files;
  Loader loader(files.config());
  std::vector<LoaderStep> steps;
  std::vector<Cursor> cursors;
  for (int step = 0; step < 11; ++step) {
    cursors.push_back(loader.cursor());
    steps.push_back(read_step(loader));
  }
  for (const size_t step : {7, 0, 10, 4, 5}) {
    loader.seek(cursors[step]);
    REQUIRE(read_step(loader).token == steps[step].token);
    loader.seek(static_cast<int64_t>(step));
    REQUIRE(read_step(loader).token == steps[step].token);
    Loader fresh(files.config());
    fresh.seek(cursors[step]);
    REQUIRE(read_step(fresh).token == steps[step].token);
    REQUIRE(fresh.epoch() == static_cast<int64_t>(step) / 5);
  }
  expect_error([&] { loader.seek(Cursor{.shard = 1}); }, "no batch 0 in shard 1");
  expect_error([&] { loader.seek(Cursor{.shard = 3}); }, "3 shards");
  expect_error([&] { loader.seek(Cursor{.batch = -1}); }, "no batch -1");
}

TEST_CASE("the buffers can come from the memory plan") {
  const Files files;
  Loader planned(files.config());
  MemoryPlan memory;
  planned.plan(memory);
  REQUIRE(memory.total_bytes() >= static_cast<size_t>(planned.bytes()));
  REQUIRE(memory.total_bytes() <
          static_cast<size_t>(planned.bytes()) + 2 * 256);  // two buffers, aligned
  memory.allocate();
  REQUIRE(read_step(planned).token == counting(0, 48, kVocab));
  REQUIRE(read_step(planned).token == counting(48, 48, kVocab));
}

TEST_CASE("loaders refuse unusable configurations") {
  const Files files;
  const auto with = [&](auto change) {
    return [&files, change] {
      LoaderConfig config = files.config();
      change(config);
      Loader loader(config);
    };
  };
  expect_error(with([](LoaderConfig& c) { c.files = {}; }), "data.train names no shard");
  expect_error(with([](LoaderConfig& c) { c.files[1] += "x"; }), "No such file");
  expect_error(with([](LoaderConfig& c) { c.batch_tokens = 50; }), "50 is not a multiple of");
  expect_error(with([](LoaderConfig& c) { c.sequence = int64_t{1} << 62; }),
               "is not a multiple of");
  expect_error(with([](LoaderConfig& c) { c.sequence = 0; }), "run.sequence is 0");
  expect_error(with([](LoaderConfig& c) { c.vocab_size = 600; }), "the vocabulary has 600");
  expect_error(with([](LoaderConfig& c) { c.batch_tokens = 1200; }),
               "shorter than a batch: the longest of 3 shards has 164 tokens");
}

TEST_CASE("a shard that changes under a running loader is an error of the step") {
  const Files files;
  Loader loader(files.config());
  read_step(loader);
  std::filesystem::resize_file(files.names[2], 1024 + 2 * 60);
  read_step(loader);
  expect_error([&] { loader.next_step(); }, "changed while it was read");
  std::filesystem::resize_file(files.names[2], 1024 + 2 * 30);
  loader.seek(2);
  expect_error([&] { loader.next_step(); }, "was cut short");
  loader.seek(0);
  REQUIRE(read_step(loader).token == counting(0, 48, kVocab));
}

TEST_CASE("a loader can be destroyed at any moment") {
  const Files files;
  for (int steps = 0; steps < 40; ++steps) {
    Loader loader(files.config());
    for (int i = 0; i < steps; ++i) loader.next_step();
  }
}

TEST_CASE("validation tokens are fixed") {
  const Files files;
  const auto read_all = [&](int64_t tokens, int64_t micro_batch) {
    LoaderStep all;
    const ValidationSet set({.files = files.names,
                             .tokens = tokens,
                             .sequence = 8,
                             .micro_batch = micro_batch,
                             .vocab_size = kVocab});
    for (int i = 0; i < set.micro_batches(); ++i) {
      const Batch batch = set.micro(i);
      const bool last = i == set.micro_batches() - 1;
      REQUIRE(batch.token.size() % 8 == 0);
      REQUIRE((last || batch.token.size() == 8 * micro_batch));
      all.token.insert(all.token.end(), batch.token.data, batch.token.data + batch.token.size());
      all.target.insert(all.target.end(), batch.target.data,
                        batch.target.data + batch.target.size());
    }
    REQUIRE(int64_t(all.token.size()) == set.tokens());
    return all;
  };
  const LoaderStep one = read_all(80, 1);
  REQUIRE(one.token == counting(0, 80, kVocab));
  REQUIRE(one.target == counting(1, 80, kVocab));
  const LoaderStep across = read_all(104, 5);  // 96 from the first shard, then 8 from the second
  REQUIRE(across.token.size() == 104);
  REQUIRE(across.token[96] == 300);
  REQUIRE(across.target[95] == 96);
  REQUIRE(across.token == read_all(104, 1).token);
  REQUIRE(across.target == read_all(104, 2).target);
  REQUIRE(read_all(1'000'000, 7).token.size() == 96 + 40 + 160);
  expect_error(
      [&] {
        ValidationSet({.files = files.names,
                       .tokens = 8,
                       .sequence = 500,
                       .micro_batch = 1,
                       .vocab_size = kVocab});
      },
      "0 whole sequences of 500");
}

}  // namespace
}  // namespace assay::test_loader
