// Without meta.json, or with one that began after the run did, checks that need its launches say
// what cannot be compared.
#include <filesystem>

#include "base/file.h"
#include "lab/receipt/make.h"
#include "lab/receipt/verify.h"
#include "lab/runs/launches.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"
#include "tests/lab/fake_run.h"

namespace assay::test_missing_launches {
namespace {

const VerifyOptions kThisBuild{
    .data = {}, .program_sha256 = sha256_hex("program"), .commit = "0123456789abcdef"};

struct Place {
  TempFolder folder;
  std::string run = folder / "moe", meta = run + "/meta.json", receipt = run + "/receipt.json";
  Place() { FakeRun{.path = run, .data = folder / "data"}.write(); }

  void seal() const { write_receipt(receipt, make_run_receipt(run, run)); }
  void set(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json all = nlohmann::json::parse(read_file(meta));
    all[key] = value;
    write_file_atomic(meta, all.dump());
  }
};

// What verify says of meta.json where it finds no drift.
std::string unknown(const Place& place) {
  const Verification v = verify_receipt(place.run, kThisBuild);
  REQUIRE(v.count(Finding::kDrift) == 0);
  std::string text;
  for (const Check& check : v.checks) {
    if (check.what == "meta.json" && check.finding == Finding::kNotAvailable) text += check.detail;
  }
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("launches that meta.json does not have are missing") {
  const Place place;
  REQUIRE(missing_launches(place.run, 40).empty());
  place.set("first_step", 15);
  REQUIRE(has(missing_launches(place.run, 40), "meta.json has no launch of the first 15 steps: "));
  REQUIRE(has(missing_launches(place.run, 10), "meta.json has no launch of the first 10 steps: "));
  REQUIRE(missing_launches(place.run, 0).empty());
  place.set("before", nlohmann::json::array({{{"first_step", 0}}}));
  REQUIRE(missing_launches(place.run, 40).empty());
  place.set("before", nlohmann::json::array());
  place.set("first_step", "15");  // no whole number: taken for the beginning
  REQUIRE(missing_launches(place.run, 40).empty());
  write_file_atomic(place.meta, "[");
  REQUIRE(has(missing_launches(place.run, 40), place.meta + " is damaged: in which precision, "));
  std::filesystem::remove(place.meta);
  REQUIRE(has(missing_launches(place.run + "/.", 40), "there is no " + place.meta + ": in which"));
}

TEST_CASE("a receipt that was made without meta.json does not verify as if nothing were missing") {
  const Place place;
  std::filesystem::remove(place.meta);
  place.seal();
  const std::string said = unknown(place);
  INFO(said);
  REQUIRE(has(said, "there is no " + place.meta));
  REQUIRE(has(said, "; the receipt was made without it, and lists no data"));
}

TEST_CASE("verify says what a lost meta.json, and one that a later launch made, leave unknown") {
  const Place place;
  place.seal();
  REQUIRE(unknown(place).empty());
  const std::string meta = read_file(place.meta);
  std::filesystem::remove(place.meta);
  const std::string lost = unknown(place);
  REQUIRE(
      has(lost, "on which device and data and by which program its steps were made is unknown"));
  REQUIRE_FALSE(has(lost, "lists no data"));

  write_file_atomic(place.meta, meta);
  place.set("first_step", 20);
  place.seal();
  REQUIRE(has(unknown(place), "has no launch of the first 20 steps"));
}

}  // namespace assay::test_missing_launches
