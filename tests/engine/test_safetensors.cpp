#include <string.h>
#include <sys/stat.h>

#include <cmath>
#include <random>

#include "base/file.h"
#include "data/sha256.h"
#include "engine/run/safetensors.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/file_size_limit.h"
#include "tests/data/temp_folder.h"

namespace assay::test_safetensors {
namespace {

struct Tensors {
  std::vector<float> weight = {1.5f, -2.0f, 3e-40f, 4.0f, 5.0f, -0.0f};
  std::vector<bf16> half = {bf16(1.0f), bf16(-3.0f), bf16(0.5f)};
  std::vector<int64_t> count = {int64_t{1} << 62};

  std::vector<TensorRef> refs() {
    return {{.name = "a.weight", .dtype = DType::kF32, .shape = {2, 3}, .data = weight.data()},
            {.name = "b.\"half\"", .dtype = DType::kBF16, .shape = {3}, .data = half.data()},
            {.name = "none", .dtype = DType::kF32, .shape = {0, 7}, .data = nullptr},
            {.name = "count", .dtype = DType::kI64, .shape = {}, .data = count.data()}};
  }
};

void read_all(const std::string& path, const std::vector<TensorRef>& tensors) {
  const SafetensorsFile file(path);
  for (const TensorRef& tensor : tensors) file.read(tensor);
}

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

}  // namespace

TEST_CASE("the first non-finite value is named") {
  Tensors t;
  REQUIRE(first_not_finite(t.refs()).empty());
  t.half[2] = bf16(-INFINITY);
  REQUIRE(first_not_finite(t.refs()) == "element 2 of b.\"half\" is -inf");
  t.weight[4] = NAN;
  REQUIRE(first_not_finite(t.refs()) == "element 4 of a.weight is nan");
}

TEST_CASE("tensors come back bit for bit") {
  const TempFolder folder;
  Tensors out;
  const WrittenFile written =
      write_safetensors(folder / "t.safetensors", out.refs(), {{"format", "pt"}});
  const std::string bytes = read_file(folder / "t.safetensors");
  REQUIRE(written.bytes == static_cast<int64_t>(bytes.size()));
  REQUIRE(written.sha256 == sha256_hex(bytes));

  Tensors in;
  in.weight.assign(6, 0.0f);
  in.half.assign(3, bf16(0.0f));
  in.count = {0};
  read_all(folder / "t.safetensors", in.refs());
  REQUIRE(memcmp(in.weight.data(), out.weight.data(), 24) == 0);
  REQUIRE(memcmp(in.half.data(), out.half.data(), 6) == 0);
  REQUIRE(in.count == out.count);

  const SafetensorsFile file(folder / "t.safetensors");
  REQUIRE(file.metadata().at("format") == "pt");
  REQUIRE(file.entries().size() == 4);
  REQUIRE(file.find("a.weight")->shape == std::vector<int64_t>{2, 3});
  REQUIRE(file.find("a.weight")->begin % 8 == 0);
  REQUIRE(file.find("b.\"half\"")->dtype == "BF16");
  REQUIRE(file.find("gone") == nullptr);
}

TEST_CASE("the layout is the published one") {
  const TempFolder folder;
  std::vector<float> x = {1.0f};
  write_safetensors(folder / "x",
                    {{.name = "x", .dtype = DType::kF32, .shape = {1}, .data = x.data()}});
  std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  REQUIRE(read_file(folder / "x") == file_of(header, std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("the header has the metadata, then the tensors in the order in which they were given") {
  const TempFolder folder;
  std::vector<float> x = {1.0f, 2.0f};
  const std::vector<TensorRef> refs = {
      {.name = "z", .dtype = DType::kF32, .shape = {1}, .data = x.data()},
      {.name = "a", .dtype = DType::kF32, .shape = {1, 1}, .data = x.data() + 1},
      {.name = "none", .dtype = DType::kBF16, .shape = {0}, .data = nullptr},
      {.name = "m", .dtype = DType::kF32, .shape = {}, .data = x.data()}};
  write_safetensors(folder / "x", refs, {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]},)"
                       R"("none":{"dtype":"BF16","shape":[0],"data_offsets":[8,8]},)"
                       R"("m":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data(reinterpret_cast<const char*>(x.data()), 8);
  REQUIRE(read_file(folder / "x") == file_of(header, data + data.substr(0, 4)));
}

TEST_CASE("elements that are read while they are written") {
  const TempFolder folder;
  constexpr int64_t kLarge = (int64_t{5} << 18) + 3;  // more than a piece of 4 MiB
  std::vector<float> large(kLarge);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  Tensors t;
  std::vector<TensorRef> refs = t.refs();
  refs.push_back({.name = "large", .dtype = DType::kF32, .shape = {kLarge}, .data = large.data()});
  const WrittenFile direct = write_safetensors(folder / "a", refs);
  std::vector<TensorRef> without_data = refs;
  for (TensorRef& ref : without_data) ref.data = nullptr;
  const ReadElements read = [&](const TensorRef& tensor, int64_t first, int64_t count, void* into) {
    for (const TensorRef& ref : refs) {
      if (ref.name != tensor.name) continue;
      const int64_t element = dtype_bytes(ref.dtype);
      memcpy(into, static_cast<char*>(ref.data) + first * element, size_t(count * element));
    }
  };
  const WrittenFile written = write_safetensors(folder / "b", without_data, {}, read);
  const WrittenFile hashed = hash_safetensors(without_data, {}, read);
  REQUIRE(read_file(folder / "a") == read_file(folder / "b"));
  for (const WrittenFile& file : {written, hashed}) {
    REQUIRE(file.bytes == direct.bytes);
    REQUIRE(file.sha256 == direct.sha256);
  }
}

TEST_CASE("a tensor that does not fit the model is named") {
  const TempFolder folder;
  const std::string path = folder / "t.safetensors";
  Tensors t;
  write_safetensors(path, t.refs());
  std::vector<TensorRef> refs = t.refs();
  refs[0].shape = {3, 2};
  expect_error([&] { read_all(path, refs); }, "a.weight is F32 (2, 3), expected F32 (3, 2)");
  refs = t.refs();
  refs[1].dtype = DType::kF32;
  expect_error([&] { read_all(path, refs); }, "is BF16 (3), expected F32 (3)");
  refs = t.refs();
  refs[3].name = "counts";
  expect_error([&] { read_all(path, refs); }, "has no tensor counts");
}

TEST_CASE("damaged files are refused") {
  const TempFolder folder;
  const std::string path = folder / "bad.safetensors";
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string data(8, 'x');
  const auto refused = [&](const std::string& bytes, const std::string& says) {
    write_file_atomic(path, bytes);
    expect_error([&] { SafetensorsFile file(path); }, says);
  };
  refused("", "has 0 bytes");
  refused("1234567", "has 7 bytes");
  refused(file_of(good, data).substr(0, 20), "says its header has");
  refused(std::string(8, '\xff') + good + data, "says its header has 18446744073709551615 bytes");
  refused(file_of(good, "1234567"), "larger than the file");
  refused(file_of(good, data + "!"), "1 bytes after the last tensor");
  refused(file_of("[]", ""), "not a JSON object");
  refused(file_of("{\"x\"", ""), "not JSON");
  refused(file_of(R"({"x":3})", ""), "tensor x lacks");
  refused(file_of(R"({"x":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", data),
          "unknown type F99");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", data),
          "not a count");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", data),
          "not a count");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
                  data),
          "larger");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", data),
          "bytes 8 to 0");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", data),
          "bytes 4 to 12");
  refused(file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", data),
          "leaves a hole");
  refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"I8","shape":[1],"data_offsets":[7,8]}})",
          data),
      "tensor y overlaps");
  refused(
      file_of(
          R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
          data),
      "names x twice");
  refused(file_of(R"({"__metadata__":{"a":"1","a":"1"}})", ""), "names a twice");
  refused(file_of(R"({"__metadata__":{"a":1}})", ""), "metadata a is not a string");
  refused(file_of(R"({"__metadata__":[]})", ""), "metadata is not");
  refused(file_of(std::string(200000, '['), ""), "its header is nested too deep");
  expect_error([&] { SafetensorsFile file(folder / "none"); }, "No such file");
  expect_error([&] { SafetensorsFile file(folder.path()); }, "is not a file");
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0644) == 0);
  expect_error([&] { SafetensorsFile file(pipe); }, "it is a pipe or a device");
}

TEST_CASE("random damage is read or refused without a crash") {
  const TempFolder folder;
  const std::string path = folder / "fuzz.safetensors";
  Tensors t;
  write_safetensors(path, t.refs(), {{"format", "pt"}});
  const std::string good = read_file(path);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = good;
    for (int i = 0; i < 2; ++i) bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    if (round % 3 == 0) bytes.resize(random() % bytes.size());
    write_file_atomic(path, bytes);
    try {
      read_all(path, t.refs());
    } catch (const UserError&) {
      ++refused;
    }
  }
  REQUIRE(refused > 500);
}

TEST_CASE("a full disk leaves the previous file intact") {
  const TempFolder folder;
  const std::string path = folder / "t.safetensors";
  Tensors t;
  write_safetensors(path, t.refs());
  const std::string before = read_file(path);
  std::vector<float> large(1 << 20);
  {
    const FileSizeLimit disk(1 << 16);
    expect_error(
        [&] {
          write_safetensors(
              path,
              {{.name = "x", .dtype = DType::kF32, .shape = {1 << 20}, .data = large.data()}});
        },
        "cannot write");
  }
  REQUIRE(read_file(path) == before);
}

TEST_CASE("a tensor knows its type and rank") {
  Tensors t;
  const TensorRef ref = t.refs()[0];
  REQUIRE(ref.bytes() == 24);
  REQUIRE(ref.as<float, 2>().at(1, 0) == 4.0f);
  const TensorRef back = tensor_ref("y", ref.as<float, 2>());
  REQUIRE(back.shape == ref.shape);
  REQUIRE(back.data == ref.data);
}

}  // namespace assay::test_safetensors
