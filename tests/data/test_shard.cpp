#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/random.h"
#include "data/sha256.h"
#include "data/shard.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_shard {
namespace {

namespace fs = std::filesystem;

TEST_CASE("both widths round-trip, with the documented bytes") {
  const TempFolder folder;
  const std::vector<int32_t> tokens = {5, 0, 65534, 7};
  const std::string hash = write_shard(folder / "narrow", tokens, 65535);
  REQUIRE(read_tokens(folder / "narrow", 65535) == tokens);
  REQUIRE(hash == sha256_file(folder / "narrow"));
  const std::string bytes = read_file(folder / "narrow");
  REQUIRE(bytes.size() == 1024 + 4 * 2);
  int32_t header[256];
  std::memcpy(header, bytes.data(), sizeof header);
  REQUIRE(header[0] == 20240520);
  REQUIRE(header[1] == 1);
  REQUIRE(header[2] == 4);
  REQUIRE(std::accumulate(header + 3, header + 256, int64_t{0}) == 0);
  REQUIRE(bytes.substr(1024) == std::string("\x05\0\0\0\xfe\xff\x07\0", 8));

  const std::vector<int32_t> large = {70000, 1, 199999};
  write_shard(folder / "wide", large, 200000);
  REQUIRE(read_tokens(folder / "wide", 200000) == large);
  std::vector<int32_t> tail(2);
  std::vector<std::byte> raw(tail.size() * sizeof(int32_t));
  Shard(folder / "wide").read(1, 200000, {tail.data(), {2}}, {raw.data(), {8}});
  REQUIRE(tail == std::vector<int32_t>{1, 199999});
  std::memcpy(header, read_file(folder / "wide").data(), sizeof header);
  REQUIRE(header[0] == 20240801);
  REQUIRE(header[1] == 7);
  REQUIRE(fs::file_size(folder / "wide") == 1024 + 3 * 4);
}

TEST_CASE("damaged shards are refused with values") {
  const TempFolder folder;
  const std::string good = folder / "good";
  write_shard(good, {1, 2, 3, 40}, 50);
  const std::string bytes = read_file(good);
  const auto header_int = [](std::string b, size_t at, int32_t value) {
    std::memcpy(b.data() + 4 * at, &value, 4);
    return b;
  };
  struct Row {
    const char* name;
    std::string content;
    const char* says;
  };
  const Row rows[] = {
      {"empty", "", "0 bytes"},
      {"short header", bytes.substr(0, 1000), "1000 bytes"},
      {"truncated", bytes.substr(0, bytes.size() - 1), "has 1031 bytes, its header says 4 tokens"},
      {"longer", bytes + "x", "has 1033 bytes"},
      {"wrong magic", header_int(bytes, 0, 7), "magic 7"},
      {"wrong version", header_int(bytes, 1, 2), "version 2, expected 1"},
      {"version of the other width", header_int(bytes, 0, 20240801), "version 1, expected 7"},
      {"negative count", header_int(bytes, 2, -1), "-1 tokens"},
      {"text", std::string(5000, 'a'), "magic"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    write_file_atomic(folder / "bad", row.content);
    expect_error([&] { Shard(folder / "bad"); }, row.says);
  }
  expect_error([&] { Shard(folder / "missing"); }, "No such file");
  expect_error([&] { Shard(folder.path()); }, "Is a directory");
  expect_error([&] { check_tokens(Shard(good), 40); }, "token 3 has id 40, the vocabulary has 40");
  expect_error(
      [&] {
        check_tokens(Shard(good), {40, IdLimit::Of::kTokenizer});
      },
      "token 3 has id 40, the tokenizer has 40 tokens: it is not that of this shard");
  expect_error([&] { find_shards({folder / "*.bin"}); }, "no shard matches");
  REQUIRE(find_shards({good, folder / "g*"}) == std::vector<std::string>{good});

  write_shard(folder / "wide", {1, 2}, 100000);
  std::string wide = read_file(folder / "wide");
  std::memset(wide.data() + 1024, 0xff, 4);  // 2^32 - 1 must not be read as a negative id
  write_file_atomic(folder / "wide", wide);
  expect_error([&] { read_tokens(folder / "wide", 100000); }, "token 0 has id 4294967295");
}

TEST_CASE("a shard that does not fit on the disk leaves nothing") {
  const TempFolder folder;
  const std::vector<int32_t> tokens(100000, 1);
  {
    const FileSizeLimit full(10000);
    expect_error([&] { write_shard(folder / "a", tokens, 50); }, "after 10000 bytes");
  }
  REQUIRE(fs::is_empty(folder.path()));
}

TEST_CASE("random bytes are not accepted as a shard and do not crash the reader") {
  const TempFolder folder;
  write_shard(folder / "a", {1, 2, 3, 4, 5, 6, 7, 8}, 50);
  const std::string good = read_file(folder / "a");
  int accepted = 0;
  RandomSequence random({.seed = 1});
  for (int round = 0; round < 600; ++round) {
    std::string bytes = good;
    bytes[random.below(12)] = static_cast<char>(random.next());
    if (random.below(4) == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size()) + 1));
    write_file_plain(folder / "fuzz", bytes);
    try {
      accepted += read_tokens(folder / "fuzz", 50).size() == 8;
    } catch (const UserError&) {
    }
  }
  REQUIRE(accepted > 0);  // where a byte was replaced by itself
  REQUIRE(accepted < 100);
}

}  // namespace
}  // namespace assay::test_shard
