// Tune files and the record of a run's products: what is written is read again, damage and other
// devices are errors with values, and which proposal counts as the fastest.
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/file.h"
#include "session/run_products.h"
#include "session/tune.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay {

namespace {

using gpu::ProductAlgorithm;
using gpu::ProductKey;

ProductKey key(int64_t m) {
  return {
      .m = m,
      .n = 768,
      .k = 2048,
      .a = {.type = ProductKey::Type::kBf16, .form = ProductKey::Form::kTransposed},
      .b = {.type = ProductKey::Type::kE4M3, .scales = ProductKey::Scales::k1x128, .alignment = 16},
      .result = ProductKey::Type::kFloat,
      .added = ProductKey::Added::kInPlace,
      .factors = ProductKey::Factors::kDevice,
      .sums = ProductKey::Sums::kPromoted,
      .c_alignment = 64,
      .d_alignment = 128};
}

KeptProduct product(int64_t m) {
  return {.key = key(m),
          .choice = {{.id = 66,
                      .tile = 1,
                      .stages = 2,
                      .split_k = 3,
                      .reduction = 2,
                      .swizzling = 4,
                      .custom = UINT32_MAX,
                      .inner_shape = 5,
                      .cluster_shape = 6},
                     gpu::ChosenBy::kTuning},
          .workspace_bytes = int64_t{40} << 20,
          .timing = KeptProduct::Timing{
              .calls = 12, .proposals = 16, .us = 100.25, .first = {.id = 7}, .first_us = 120.5}};
}

TuneFile tune_file() {
  return {.device = {.gpu = "a GPU", .capability = 90, .cublaslt = 130100, .driver = 13000},
          .workspace_bytes = int64_t{128} << 20,
          .date = "2026-01-02",
          .commit = "abc",
          .model = "dense",
          .rounds = 9,
          .left_out = 1,
          .products = {product(1), product(2)}};
}

// The message of reading a file with this text.
std::string problem_of(const std::string& text) {
  const TempFolder folder;
  const std::string path = folder / "tune.json";
  write_file_atomic(path, text);
  try {
    read_tuning(path);
  } catch (const UserError& error) {
    REQUIRE(error.hint().find("assay tune") != std::string::npos);
    const std::string what = error.what();
    REQUIRE(what.rfind(path + ": ", 0) == 0);
    return what.substr(path.size() + 2);
  }
  return "";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = tune_json(tune_file()).dump(1);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TimedProposal timed(int64_t id, std::vector<double> us) {
  return {{.algorithm = {.id = id}, .workspace_bytes = 0}, std::move(us)};
}

}  // namespace

TEST_CASE("a tune file is read as it was written") {
  const TempFolder folder;
  const TuneFile file = tune_file();
  write_file_atomic(folder / "a.json", tune_json(file).dump(1));
  const Tuning read = read_tuning(folder / "a.json");
  REQUIRE(tune_json(read.file) == tune_json(file));
  REQUIRE(read.file.products[1].key == key(2));
  REQUIRE(read.file.products[1].choice == product(2).choice);
  REQUIRE(read.sha256.size() == 64);
  REQUIRE(read.file.first_us() == 2 * 12 * 120.5);
  REQUIRE(read.file.chosen_us() == 2 * 12 * 100.25);
  REQUIRE(read.file.device.text() == "a GPU (9.0), cuBLASLt 13.1.0");
}

TEST_CASE("the record of a run's products is read as it was written") {
  const TempFolder folder;
  const std::string path = folder / "products.json";
  REQUIRE(read_products(path).empty());
  KeptProduct first = product(3);
  first.choice.by = gpu::ChosenBy::kLibrary;
  first.timing.reset();
  const std::vector<ProductsRecord> records{
      {.device = tune_file().device, .tune_sha256 = "", .products = {first}},
      {.device = {.gpu = "b", .capability = 100, .cublaslt = 130200, .driver = 1},
       .tune_sha256 = "ab",
       .products = {}}};
  write_file_atomic(path, products_json(records).dump());
  const std::vector<ProductsRecord> read = read_products(path);
  REQUIRE(products_json(read) == products_json(records));
  REQUIRE(read[0].products[0].choice == first.choice);
}

TEST_CASE("a damaged tune file is an error that names the place") {
  REQUIRE(problem_of(tune_json(tune_file()).dump(1)).empty());
  REQUIRE(problem_of("") == "it is no JSON object");
  REQUIRE(problem_of(tune_json(tune_file()).dump(1).substr(0, 700)) == "it is no JSON object");
  REQUIRE(problem_of("{\"format\": 1}") == "it has \"format\", which is no text");
  REQUIRE(problem_of(with("assay tune 1", "assay tune 2")) ==
          "it has \"format\": \"assay tune 2\", not \"assay tune 1\"");
  REQUIRE(problem_of(with("\"cublaslt\"", "\"cublas\"")) == "it has no \"cublaslt\"");
  REQUIRE(problem_of(with("\"k\": 2048", "\"k\": 0")) == "products[0].product has \"k\": 0");
  REQUIRE(problem_of(with("\"k\": 2048", "\"k\": 2048.5")) ==
          "products[0].product has \"k\", which is no integer");
  REQUIRE(problem_of(with("\"bf16\"", "\"bf17\"")) ==
          "products[0].product.a has \"type\": \"bf17\"");
  REQUIRE(problem_of(with("\"split_k\": 3", "\"split_k\": -3")) ==
          "products[0].algorithm has \"split_k\": -3");
  REQUIRE(problem_of(with("\"first\"", "\"last\"")) == "products[0] has no \"first\"");
  REQUIRE(problem_of(with("\"alignment\": 256", "\"alignment\": 512")) ==
          "products[0].product.a has \"alignment\": 512");
}

TEST_CASE("choices are of a GPU's name and capability and of a library, not of a driver") {
  const ProductsDevice device = tune_file().device;
  ProductsDevice other = device;
  other.driver = 1;
  REQUIRE(device.same(other));
  other.cublaslt = 130101;
  REQUIRE(!device.same(other));
  other = device;
  other.gpu = "another";
  REQUIRE(!device.same(other));
}

TEST_CASE("the fastest by median is kept if it is worth it, else what the library proposed") {
  const TimedProposal first = timed(7, {100, 100, 100}), same = timed(7, {100.5, 100.5, 100.5});
  REQUIRE(to_keep({first, same, timed(8, {97, 98, 300}), timed(9, {10, 99, 99})}) == 2);
  REQUIRE(to_keep({first, timed(8, {99.5, 99.5, 99.5}), same}) == 2);
  REQUIRE(to_keep({first, same}) == 1);
  // Made anew it is slower, or it cannot be made anew.
  REQUIRE(!to_keep({first, timed(7, {102, 102, 102}), timed(8, {103, 103, 103})}));
  REQUIRE(!to_keep({first, timed(8, {99.5, 99.5, 99.5})}));
  REQUIRE(!to_keep({first}));
}

}  // namespace assay
