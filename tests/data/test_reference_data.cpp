#include "base/file.h"
#include "data/hash_files.h"
#include "data/reference_data.h"
#include "data/sha256.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/shard_files.h"
#include "tests/data/temp_folder.h"

namespace assay::test_reference_data {
namespace {

// One validation shard in a folder of its own; the bytes of a shard do not matter here.
struct Shard {
  TempFolder folder;
  std::string path = folder / "val.bin", sha256 = sha256_hex("text of a study");
  HashedFiles hashed;

  Shard() {
    write_file_plain(path, "text of a study");
    hashed = hash_files({path}, UseCache::kNo);
  }
  void says(const std::string& text) { write_file_plain(folder / "reference.json", text); }
  void require(const std::string& reference) const { require_reference(reference, {path}, hashed); }
};

std::string named(const std::string& name, const std::string& sha256) {
  return R"({"name": ")" + name + R"(", "from": "a server", "sha256": {"val.bin": ")" + sha256 +
         "\"}}";
}

TEST_CASE("validation data that is the reference") {
  Shard shard;
  shard.require("any");
  shard.require(shard.sha256);
  shard.says(named("study", shard.sha256));
  shard.require("study");
}

TEST_CASE("validation data that is not the reference") {
  Shard shard;
  const std::string other(64, 'a');
  expect_error([&] { shard.require(other); }, "val.bin has SHA-256 " + shard.sha256);
  expect_error(
      [&] {
        require_reference(other, {shard.path, shard.path}, shard.hashed);
      },
      "data.val has 2 files");
  expect_error([&] { shard.require("study"); }, "reference.json is missing");
  shard.says(named("story", shard.sha256));
  expect_error([&] { shard.require("study"); }, "reference.json says story");
  shard.says(named("study", other));
  expect_error([&] { shard.require("study"); }, "which is not that of");
  shard.says(R"({"name": "study", "sha256": {"train.bin": ""}})");
  expect_error([&] { shard.require("study"); }, "does not name val.bin");
  for (const char* damaged : {"", "[]", R"({"name": 3, "sha256": {}})", R"({"name": "study"})"}) {
    shard.says(damaged);
    expect_error([&] { shard.require("study"); }, "reference.json is damaged");
  }
}

}  // namespace
}  // namespace assay::test_reference_data
