#include <algorithm>
#include <map>
#include <set>

#include "base/hash.h"
#include "data/loader.h"
#include "data/sequence_order.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/loader_step.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_shuffle {
namespace {

std::vector<int64_t> epoch_of(const SequenceOrder& order, int64_t epoch) {
  std::vector<int64_t> visited;
  for (int64_t i = 0; i < order.sequences(); ++i)
    visited.push_back(order.at(epoch * order.sequences() + i));
  return visited;
}

TEST_CASE("every sequence is visited once per epoch") {
  for (const int64_t n : {1, 2, 3, 7, 16, 255, 256, 257, 1000, 4096, 4097, 70'001})
    for (const int64_t epoch : {0, 1, 5}) {
      std::vector<int64_t> visited = epoch_of(SequenceOrder(n, 7), epoch);
      std::sort(visited.begin(), visited.end());
      for (int64_t i = 0; i < n; ++i) REQUIRE(visited[static_cast<size_t>(i)] == i);
    }
  const SequenceOrder large(int64_t{1} << 40, 3);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) seen.insert(large.at(i));
  REQUIRE(seen.size() == 1000);
  REQUIRE(*seen.rbegin() < int64_t{1} << 40);
}

TEST_CASE("epochs, seeds and sources have orders of their own") {
  const std::vector<int64_t> first = epoch_of(SequenceOrder(1000, 1), 0);
  for (const std::vector<int64_t>& other :
       {epoch_of(SequenceOrder(1000, 1), 1), epoch_of(SequenceOrder(1000, 2), 0),
        epoch_of(SequenceOrder(1000, 1, 1), 0)}) {
    int same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    REQUIRE(same < 10);  // 1 is expected
  }
  // The order is fixed: a new program version must not change what a run has visited.
  REQUIRE(std::vector<int64_t>(first.begin(), first.begin() + 6) ==
          std::vector<int64_t>{209, 483, 604, 478, 62, 103});
  std::vector<uint64_t> three;
  for (int64_t i = 0; i < 3000; ++i)
    three.push_back(static_cast<uint64_t>(SequenceOrder(1000, 1).at(i)));
  REQUIRE(hash_words(three.data(), three.size()) == 12669345766513012764u);
}

TEST_CASE("all orders of few sequences are equally likely") {
  std::map<std::vector<int64_t>, int> orders;
  constexpr int kDraws = 24'000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) ++orders[epoch_of(SequenceOrder(4, seed), 0)];
  REQUIRE(orders.size() == 24);
  for (const auto& [order, count] : orders) REQUIRE(std::abs(count - 1000) < 160);  // 5 sigma
}

constexpr int64_t kVocab = 2000;

// Three shards of 12, 0 and 7 sequences of 8 tokens. A sequence is known by its first token.
struct Files {
  TempFolder folder;
  std::vector<std::string> names = {folder / "a", folder / "b", folder / "c"};
  std::set<int32_t> first;
  Files() {
    write_shard(names[0], counting(0, 12 * 8 + 1, kVocab), kVocab);
    write_shard(names[1], counting(300, 8, kVocab), kVocab);
    write_shard(names[2], counting(500, 7 * 8 + 5, kVocab), kVocab);
    for (int i = 0; i < 12; ++i) first.insert(8 * i);
    for (int i = 0; i < 7; ++i) first.insert(500 + 8 * i);
  }
  LoaderConfig config(uint64_t seed = 1) const {
    return {.files = names,
            .shuffle = Shuffle::kYes,
            .seed = seed,
            .batch_tokens = 48,
            .sequence = 8,
            .micro_batch = 3,
            .vocab_size = kVocab,
            .say = [](const std::string&) {}};
  }
};

// First tokens of the sequences of a step. Requires that each is a whole sequence of the files.
std::vector<int32_t> sequences(const LoaderStep& step) {
  std::vector<int32_t> first;
  for (size_t i = 0; i < step.token.size(); i += 8) {
    first.push_back(step.token[i]);
    for (size_t j = 0; j < 8; ++j) {
      REQUIRE(step.token[i + j] == step.token[i] + static_cast<int32_t>(j));
      REQUIRE(step.target[i + j] == step.token[i + j] + 1);
    }
  }
  return first;
}

TEST_CASE("a shuffled loader visits each sequence once per epoch, across shards") {
  const Files files;
  std::vector<std::string> said;
  LoaderConfig config = files.config();
  config.say = [&](const std::string& line) { said.push_back(line); };
  Loader loader(config);
  REQUIRE(loader.epochs(19) == 6);
  std::vector<int32_t> visited;
  for (int step = 0; step < 19; ++step) {  // 114 = 6 epochs of 19 sequences
    for (const int32_t first : sequences(read_step(loader))) visited.push_back(first);
    REQUIRE(loader.epoch() == step * 6 / 19);
    REQUIRE(said.size() == static_cast<size_t>((step * 6 + 5) / 19));
  }
  REQUIRE(said[0] == "data: epoch 2 begins: the same 19 sequences of 8 tokens in a new order");
  std::set<std::vector<int32_t>> orders;
  for (auto at = visited.begin(); at != visited.end(); at += 19) {
    REQUIRE(std::set<int32_t>(at, at + 19) == files.first);
    orders.insert(std::vector<int32_t>(at, at + 19));
  }
  REQUIRE(orders.size() == 6);
  Loader other(files.config(2));
  REQUIRE(sequences(read_step(other)) !=
          std::vector<int32_t>(visited.begin(), visited.begin() + 6));
}

TEST_CASE("a shuffled order does not depend on ranks or micro-batch size") {
  const Files files;
  Loader whole(files.config());
  for (const int ranks : {1, 2, 3, 6})
    for (const int64_t micro_batch : {1, 6 / ranks}) {
      whole.seek(0);
      std::vector<std::unique_ptr<Loader>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        LoaderConfig config = files.config();
        config.rank = rank;
        config.ranks = ranks;
        config.micro_batch = micro_batch;
        parts.push_back(std::make_unique<Loader>(config));
      }
      for (int step = 0; step < 8; ++step) {
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

TEST_CASE("a shuffled run resumes in the middle of an epoch") {
  const Files files;
  Loader loader(files.config());
  std::vector<LoaderStep> steps;
  std::vector<Cursor> cursors;
  for (int step = 0; step < 11; ++step) {
    cursors.push_back(loader.cursor());
    steps.push_back(read_step(loader));
  }
  for (const size_t step : {7, 0, 10, 3, 4}) {
    loader.seek(cursors[step]);
    REQUIRE(read_step(loader) == steps[step]);
    Loader fresh(files.config());
    fresh.seek(cursors[step]);
    REQUIRE(read_step(fresh) == steps[step]);
    REQUIRE(fresh.epoch() == loader.epoch());
  }
  expect_error([&] { loader.seek(Cursor{.shard = 1, .batch = 2}); }, "no step 2 in shard 1");
  expect_error([&] { loader.seek(Cursor{.batch = 10}); }, "no step 10");
  expect_error([&] { loader.seek(Cursor{.batch = -1}); }, "no step -1");
  LoaderConfig large = files.config();
  large.batch_tokens = 480;
  expect_error([&] { Loader{large}; },
               "3 shards have 19 sequences of 8 tokens, run.batch_tokens 480 needs 60");
}

TEST_CASE("the sources of a mixture are shuffled each by itself") {
  const Files files;
  LoaderConfig config = files.config();
  config.files = {};
  config.mixture = {{.name = "a", .files = {files.names[0]}, .weight = 3},
                    {.name = "c", .files = {files.names[2]}, .weight = 2}};
  std::vector<std::string> said;
  config.say = [&](const std::string& line) { said.push_back(line); };
  Loader loader(config);
  LoaderConfig in_order = config;
  in_order.shuffle = Shuffle::kNo;
  in_order.say = [](const std::string&) {};
  Loader plain(in_order);
  std::map<bool, std::vector<int32_t>> visited;  // by: is of source c
  std::vector<LoaderStep> steps;
  for (int step = 0; step < 30; ++step) {
    const std::vector<int32_t> first = sequences(steps.emplace_back(read_step(loader)));
    const std::vector<int32_t> unshuffled = sequences(read_step(plain));
    for (size_t i = 0; i < first.size(); ++i) {
      REQUIRE((first[i] >= 500) == (unshuffled[i] >= 500));  // the draws are the same
      visited[first[i] >= 500].push_back(first[i]);
    }
  }
  for (const auto& [is_c, firsts] : visited) {
    const size_t n = is_c ? 7 : 12;
    std::set<std::vector<int32_t>> orders;
    for (size_t at = 0; at + n <= firsts.size(); at += n) {
      const std::vector<int32_t> epoch(firsts.begin() + static_cast<long>(at),
                                       firsts.begin() + static_cast<long>(at + n));
      REQUIRE(std::set<int32_t>(epoch.begin(), epoch.end()).size() == n);
      orders.insert(epoch);
    }
    REQUIRE(orders.size() == firsts.size() / n);
  }
  REQUIRE(said[0].find(" begins: the same ") != std::string::npos);
  loader.seek(17);
  REQUIRE(read_step(loader) == steps[17]);
}

}  // namespace
}  // namespace assay::test_shuffle
