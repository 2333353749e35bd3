#include <cmath>
#include <map>
#include <numeric>

#include "data/loader.h"
#include "data/mixture.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/loader_step.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_mixture {
namespace {

std::vector<int32_t> drawn(const Mixture& mixture, int64_t step) {
  std::vector<int32_t> source(static_cast<size_t>(mixture.sequences()), -1);
  mixture.draw(step, source);
  return source;
}

TEST_CASE("every step takes its share of each source, rounded down or up") {
  const std::vector<double> weights = {5, 0.02, 3.98, 1};
  for (const int64_t sequences : {1, 7, 64}) {
    const Mixture mixture(weights, sequences, 3);
    constexpr int64_t kSteps = 4000;
    std::vector<int64_t> counts(weights.size()), sums(weights.size());
    for (int64_t step = 0; step < kSteps; ++step) {
      mixture.count(step, counts);
      REQUIRE(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == sequences);
      const std::vector<int32_t> source = drawn(mixture, step);
      for (size_t k = 0; k < weights.size(); ++k) {
        const double wanted = weights[k] / 10 * static_cast<double>(sequences);
        REQUIRE(counts[k] >= static_cast<int64_t>(std::floor(wanted)));
        REQUIRE(counts[k] <= static_cast<int64_t>(std::ceil(wanted)));
        REQUIRE(counts[k] == std::count(source.begin(), source.end(), static_cast<int32_t>(k)));
        sums[k] += counts[k];
      }
    }
    // The roundings of the steps cancel over time.
    for (size_t k = 0; k < weights.size(); ++k) {
      const double wanted = weights[k] / 10 * static_cast<double>(sequences * kSteps);
      REQUIRE(std::abs(static_cast<double>(sums[k]) - wanted) < 4);
      REQUIRE(mixture.share(static_cast<int64_t>(k)) == Approx(weights[k] / 10).epsilon(1e-6));
    }
  }
}

TEST_CASE("every position of a step gets every source, and another seed draws differently") {
  const Mixture mixture({1, 3}, 8, 1), other({1, 3}, 8, 2);
  std::vector<int> first(8, 0);
  int same = 0;
  for (int64_t step = 0; step < 800; ++step) {
    const std::vector<int32_t> source = drawn(mixture, step);
    for (size_t i = 0; i < 8; ++i) first[i] += source[i] == 0;
    same += source == drawn(other, step);
  }
  for (const int count : first) REQUIRE(std::abs(count - 200) < 60);  // 5 of sqrt(800 * 3/16)
  REQUIRE(same < 100);  // there are 28 ways to place two of eight
  // The draws are fixed: a new program version must not change what a run has drawn.
  const Mixture uneven({7, 3}, 16, 1);  // 11.2 and 4.8 of 16
  std::vector<int64_t> counts(2), of_first;
  for (int64_t step = 0; step < 10; ++step) {
    uneven.count(step, counts);
    of_first.push_back(counts[0]);
  }
  REQUIRE(of_first == std::vector<int64_t>{11, 11, 11, 12, 11, 11, 12, 11, 11, 11});
  REQUIRE(drawn(mixture, 0) == std::vector<int32_t>{1, 0, 1, 1, 1, 1, 0, 1});
  REQUIRE(drawn(mixture, 1) == std::vector<int32_t>{0, 1, 1, 1, 0, 1, 1, 1});
}

TEST_CASE("the counts drawn before any step can be computed directly") {
  const Mixture mixture({0.2, 0.5, 0.3}, 5, 9);
  DrawnBefore before(mixture);
  std::vector<int64_t> sums(3, 0), counts(3);
  std::vector<std::vector<int64_t>> all;
  for (int64_t step = 0; step < 50; ++step) {
    all.push_back(sums);
    mixture.count(step, counts);
    for (size_t k = 0; k < 3; ++k) sums[k] += counts[k];
  }
  for (const size_t step : {0, 1, 2, 30, 31, 7, 49, 0}) {
    const std::span<const int64_t> got = before.at(static_cast<int64_t>(step));
    REQUIRE(std::vector<int64_t>(got.begin(), got.end()) == all[step]);
  }
}

TEST_CASE("sources that would never be drawn are refused") {
  expect_error([] { Mixture({1, 1e-12, 1}, 8, 1); }, "weight 1e-12 of 2 in all is too small");
  expect_error([] { Mixture({1, 1e-12}, 8, 1); }, "weight 1e-12 of 1 in all is too small");
  expect_error([] { Mixture({1, 1}, int64_t{1} << 31, 1); }, "2147483648 sequences");
}

constexpr int64_t kVocab = 1000;

// Two sources of 8-token sequences: 9 in two shards, with a shard too short for one between them,
// and 3 in one.
struct Sources {
  TempFolder folder;
  Sources() {
    write_shard(folder / "a1", counting(0, 5 * 8 + 3, kVocab), kVocab);
    write_shard(folder / "a2", counting(100, 8, kVocab), kVocab);
    write_shard(folder / "a3", counting(200, 4 * 8 + 1, kVocab), kVocab);
    write_shard(folder / "b", counting(500, 3 * 8 + 7, kVocab), kVocab);
  }
  // First tokens of the sequences of each source, in order.
  const std::vector<std::vector<int32_t>> first = {{0, 8, 16, 24, 32, 200, 208, 216, 224},
                                                   {500, 508, 516}};
  LoaderConfig config() const {
    LoaderConfig config;
    config.mixture = {
        {.name = "a", .files = {folder / "a1", folder / "a2", folder / "a3"}, .weight = 3},
        {.name = "b", .files = {folder / "b"}, .weight = 1}};
    config.seed = 5;
    config.batch_tokens = 48;
    config.sequence = 8;
    config.micro_batch = 2;
    config.vocab_size = kVocab;
    config.say = [](const std::string&) {};
    return config;
  }
};

TEST_CASE("a mixture reads the sequences of each source in order, and starts over") {
  const Sources files;
  std::vector<std::string> said;
  LoaderConfig config = files.config();
  config.say = [&](const std::string& line) { said.push_back(line); };
  Loader loader(config);
  REQUIRE(loader.source_sequences() == std::vector<int64_t>{9, 3});
  const Mixture mixture({3, 1}, 6, 5);
  std::vector<size_t> next(2, 0);
  size_t wanted_said = 0;
  for (int64_t step = 0; step < 40; ++step) {
    const LoaderStep got = read_step(loader);
    const std::vector<int32_t> source = drawn(mixture, step);
    std::vector<size_t> before = next;
    for (size_t i = 0; i < source.size(); ++i) {
      const size_t k = static_cast<size_t>(source[i]);
      const int32_t first = files.first[k][next[k]++ % files.first[k].size()];
      const auto row = [&](const std::vector<int32_t>& all) {
        return std::vector<int32_t>(all.begin() + static_cast<long>(8 * i),
                                    all.begin() + static_cast<long>(8 * i + 8));
      };
      REQUIRE(row(got.token) == counting(first, 8, kVocab));
      REQUIRE(row(got.target) == counting(first + 1, 8, kVocab));
    }
    for (size_t k = 0; k < 2; ++k) {
      const size_t length = files.first[k].size();
      REQUIRE(loader.source_use()[k].epochs ==
              static_cast<double>(next[k]) / static_cast<double>(length));
      REQUIRE(loader.source_use()[k].share ==
              static_cast<double>(next[k]) / static_cast<double>(6 * (step + 1)));
      const size_t begun = (next[k] + length - 1) / length;
      wanted_said += before[k] > 0 && begun > (before[k] + length - 1) / length;
    }
    REQUIRE(said.size() == wanted_said);
    REQUIRE(loader.counted_targets(501) ==
            48 - std::count(got.target.begin(), got.target.end(), 501));
  }
  REQUIRE(said.size() > 30);
  REQUIRE(std::count(said.begin(), said.end(),
                     "data: epoch 2 of b begins, the same 3 sequences of 8 tokens again") == 1);
}

TEST_CASE("a mixture does not depend on ranks or micro-batch size") {
  const Sources files;
  Loader whole(files.config());
  for (const int ranks : {2, 3})
    for (const int64_t micro_batch : {1, 2}) {
      if (6 % (ranks * micro_batch) != 0) continue;
      whole.seek(0);
      std::vector<std::unique_ptr<Loader>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderConfig config = files.config();
        config.rank = rank;
        config.ranks = ranks;
        config.micro_batch = micro_batch;
        parts.push_back(std::make_unique<Loader>(config));
      }
      for (int step = 0; step < 9; ++step) {
        LoaderStep joined;
        for (auto& part : parts) {
          const LoaderStep own = read_step(*part);
          joined.token.insert(joined.token.end(), own.token.begin(), own.token.end());
          joined.target.insert(joined.target.end(), own.target.begin(), own.target.end());
        }
        REQUIRE(joined == read_step(whole));
      }
    }
}

TEST_CASE("a mixture resumes at any step") {
  const Sources files;
  Loader loader(files.config());
  std::vector<LoaderStep> steps;
  std::vector<Cursor> cursors;
  for (int step = 0; step < 20; ++step) {
    cursors.push_back(loader.cursor());
    steps.push_back(read_step(loader));
  }
  for (const size_t step : {7, 0, 19, 4, 5}) {
    loader.source_use(1000);  // computing the use of later steps has no side effect
    loader.seek(cursors[step]);
    REQUIRE(read_step(loader) == steps[step]);
    Loader fresh(files.config());
    fresh.seek(cursors[step]);
    REQUIRE(read_step(fresh) == steps[step]);
  }
  MemoryPlan memory;
  Loader planned(files.config());
  planned.plan(memory);
  REQUIRE(memory.total_bytes() >= static_cast<size_t>(planned.bytes()));
  memory.allocate();
  REQUIRE(read_step(planned) == steps[0]);
  REQUIRE(read_step(planned) == steps[1]);
  expect_error([&] { loader.seek(Cursor{.shard = 1, .batch = 3}); }, "no step 3 in shard 1");
  expect_error([&] { loader.seek(Cursor{.batch = -1}); }, "no step -1");
}

TEST_CASE("mixtures refuse unusable sources") {
  const Sources files;
  LoaderConfig config = files.config();
  config.mixture[1].files = {files.folder / "a2"};
  expect_error([&] { Loader loader(config); },
               "b is shorter than a sequence: the longest of its 1 shards has 8 tokens, "
               "run.sequence 8 needs 9");
  config = files.config();
  config.vocab_size = 510;
  expect_error([&] { Loader loader(config); }, "b: token 10 has id 510");
  config.mixture[1].files[0] += "x";
  expect_error([&] { Loader loader(config); }, "No such file");
}

}  // namespace
}  // namespace assay::test_mixture
