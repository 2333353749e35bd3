#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "data/hash_files.h"
#include "data/manifest.h"
#include "data/sha256.h"
#include "data/shard.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_hash_files {
namespace {

namespace fs = std::filesystem;

// The user's cache is in the folder while the test runs.
class CacheIn {
 public:
  explicit CacheIn(const std::string& folder) { setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  ~CacheIn() { unsetenv("XDG_CACHE_HOME"); }
};

const std::string kWrong(64, 'a');

// A hash that no file has, as if it had been computed ten seconds after the last change.
CachedHash planted(const std::string& path) {
  const FileStamp stamp = stamp_of(path);
  return {.stamp = stamp, .sha256 = kWrong, .computed_at = stamp.ctime_ns / 1'000'000'000 + 10};
}

TEST_CASE("hard links that appear while a file is hashed are no change of it") {
  const TempFolder folder;
  const std::string file = folder / "large";
  write_file_plain(file, std::string(size_t{64} << 20, 'x'));
  std::thread linking([&] {
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      fs::create_hard_link(file, folder / ("link" + std::to_string(i)));
    }
  });
  const HashedFiles files = hash_files({file}, UseCache::kNo);
  linking.join();
  REQUIRE(files.at(file).sha256 == sha256_file(file));
}

TEST_CASE("files are hashed from their bytes") {
  const TempFolder folder;
  const CacheIn cache(folder / "cache");
  std::vector<std::string> paths;
  for (int i = 0; i < 9; ++i) {
    paths.push_back(folder / std::to_string(i));
    write_file_plain(paths.back(), std::string(static_cast<size_t>(i * 500'000), char('a' + i)));
  }
  paths.push_back(paths.front());
  const HashedFiles files = hash_files(paths, UseCache::kYes);
  REQUIRE(files.size() == 9);
  for (const auto& [path, file] : files) {
    REQUIRE(file.sha256 == sha256_hex(read_file(path)));
    REQUIRE(file.stamp == stamp_of(path));
    REQUIRE(file.how() == "computed");
  }
  // These files changed a moment ago: another change might leave the same times.
  REQUIRE(!fs::exists(hash_cache_path()));
  paths.push_back(folder / "none");
  expect_error([&] { hash_files(paths, UseCache::kYes); }, "none: No such file");
}

TEST_CASE("a hash comes from the cache while the file's stamp is the same") {
  const TempFolder folder;
  const CacheIn cache(folder / "cache");
  const std::string a = folder / "a", b = folder / "b";
  write_file_plain(a, "one");
  write_file_plain(b, "two");
  HashCache().add({planted(a), planted(b)});
  HashedFiles files = hash_files({a, b}, UseCache::kYes);
  REQUIRE(files.at(a).sha256 == kWrong);
  REQUIRE(files.at(a).how().starts_with("cached, computed 20"));
  REQUIRE(hash_files({a}, UseCache::kNo).at(a).sha256 == sha256_hex("one"));
  REQUIRE(hashed_text(files, 0).find("from the cache") != std::string::npos);

  // Same size and mtime, other bytes: the new ctime tells.
  const fs::file_time_type mtime = fs::last_write_time(a);
  usleep(20'000);
  write_file_plain(a, "owe");
  fs::last_write_time(a, mtime);
  files = hash_files({a, b}, UseCache::kYes);
  REQUIRE(files.at(a).sha256 == sha256_hex("owe"));
  REQUIRE(files.at(b).sha256 == kWrong);
}

TEST_CASE("a damaged cache costs nothing but time") {
  const TempFolder folder;
  const CacheIn cache(folder / "cache");
  const std::string a = folder / "a", b = folder / "b";
  write_file_plain(a, "one");
  write_file_plain(b, "two");
  HashCache().add({planted(a)});
  const std::string path = hash_cache_path(), whole = read_file(path);
  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = damaged[i] == '7' ? '8' : '7';
    write_file_plain(path, damaged);
    REQUIRE(hash_files({a}, UseCache::kYes).at(a).sha256 == sha256_hex("one"));
    write_file_plain(path, whole.substr(0, i));
    REQUIRE(hash_files({a}, UseCache::kYes).at(a).sha256 == sha256_hex("one"));
  }
  // A line after one that was cut short is whole.
  write_file_plain(path, whole.substr(0, 30));
  HashCache().add({planted(b)});
  REQUIRE(hash_files({b}, UseCache::kYes).at(b).sha256 == kWrong);
  // A folder in its place, and a place that cannot be written.
  fs::remove(path);
  fs::create_directory(path);
  HashCache().add({planted(b)});
  REQUIRE(hash_files({b}, UseCache::kYes).at(b).sha256 == sha256_hex("two"));
  HashCache nowhere("/proc/none/sha256");
  nowhere.add({planted(b)});
  REQUIRE(nowhere.find(stamp_of(b))->sha256 == kWrong);
  REQUIRE(!HashCache("").find(stamp_of(a)));
}

TEST_CASE("many processes share the cache, and it stays small") {
  const TempFolder folder;
  const std::string path = folder / "sha256";
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 50; ++i)
        HashCache(path).add(
            {{.stamp = {.device = t, .inode = i}, .sha256 = kWrong, .computed_at = 9}});
    });
  for (std::thread& thread : threads) thread.join();
  const HashCache cache(path);
  for (uint64_t t = 0; t < 8; ++t)
    for (uint64_t i = 0; i < 50; ++i) REQUIRE(cache.find({.device = t, .inode = i}));
  std::vector<CachedHash> many;
  for (uint64_t i = 0; i < 30'000; ++i)
    many.push_back({.stamp = {.device = 99, .inode = i}, .sha256 = kWrong, .computed_at = 9});
  HashCache(path).add(many);
  HashCache(path).add({{.stamp = {.device = 100, .inode = 1}, .sha256 = kWrong, .computed_at = 9}});
  REQUIRE(fs::file_size(path) < (2 << 20));
  REQUIRE(HashCache(path).find({.device = 100, .inode = 1}));
  REQUIRE(HashCache(path).find({.device = 99, .inode = 29'999}));
}

// A shard that the run expects to stay as it was hashed.
struct Expected {
  TempFolder folder;
  std::string path = folder / "shard";
  Expected() { write_shard(path, counting(0, 100, 1000), 1000); }
  Shard shard() const {
    Shard shard(path);
    shard.expect(hash_files({path}, UseCache::kNo).at(path));
    return shard;
  }
  static void read(const Shard& shard) {
    std::vector<int32_t> tokens(10);
    std::vector<std::byte> raw(20);
    shard.read(0, 1000, {tokens.data(), {10}}, {raw.data(), {20}});
    REQUIRE(tokens == counting(0, 10, 1000));
  }
  void change(int64_t at) const {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('\x7f');
  }
};

TEST_CASE("a shard that changes while it is read is an error with both hashes") {
  const Expected files;
  const Shard shard = files.shard();
  Expected::read(shard);
  usleep(20'000);
  files.change(1024 + 150);  // not where read() looks
  const std::string before = sha256_file(files.path).substr(0, 16);
  std::string said;
  try {
    Expected::read(shard);
  } catch (const UserError& changed) {
    said = changed.what();
  }
  REQUIRE(said.find("changed while the run reads it: SHA-256 was ") != std::string::npos);
  REQUIRE(said.find("is " + before) != std::string::npos);
  expect_error([&] { Shard(files.path).expect(HashedFile{.stamp = {}, .sha256 = kWrong}); },
               "SHA-256 was aaaaaaaaaaaaaaaa");
}

TEST_CASE("new times, links and a file put in its place leave a shard as it was") {
  const Expected files;
  const Shard shard = files.shard();
  usleep(20'000);
  fs::last_write_time(files.path, fs::file_time_type::clock::now());
  Expected::read(shard);
  fs::create_hard_link(files.path, files.folder / "link");
  Expected::read(shard);
  fs::permissions(files.path, fs::perms::owner_read);
  Expected::read(shard);
  fs::rename(files.folder / "link", files.path + ".old");
  write_shard(files.folder / "new", counting(5, 100, 1000), 1000);
  fs::rename(files.folder / "new", files.path);
  Expected::read(shard);
}

TEST_CASE("files are compared with the manifest beside them") {
  const TempFolder folder;
  const std::string path = folder / "a.bin";
  write_file_plain(path, "one");
  const auto manifest = [&](const std::string& sha256) {
    Manifest m{.tokenizer_file = "t", .tokenizer_sha256 = "", .shards = {}};
    m.shards.push_back({.file = "a.bin", .split = "train", .sha256 = sha256});
    write_file_plain(folder / kManifestName, manifest_text(m));
  };
  const HashedFiles files = hash_files({path}, UseCache::kNo);
  require_manifest_hashes(files);
  manifest(sha256_hex("one"));
  require_manifest_hashes(files);
  manifest(kWrong);
  expect_error([&] { require_manifest_hashes(files); },
               "a.bin has SHA-256 " + sha256_hex("one").substr(0, 16));
  expect_error([&] { require_manifest_hashes(files); }, "manifest.json says aaaaaaaaaaaaaaaa");
}

}  // namespace
}  // namespace assay::test_hash_files
