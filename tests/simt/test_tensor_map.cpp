#include "base/bf16.h"
#include "cuda/tensor_map_problem.h"
#include "tests/catch.h"

namespace assay {
namespace {

using gpu::Swizzle;

TEST_CASE("tensor maps that the driver would refuse are refused") {
  alignas(16) static bf16 memory[8];
  const gpu::TensorMapSpec good = {.name = "x",
                                   .base = memory,
                                   .rank = 2,
                                   .dim = {100, 10},
                                   .stride_bytes = {208},
                                   .box = {64, 8},
                                   .swizzle = Swizzle::k128};
  REQUIRE(gpu::tensor_map_problem(good).empty());
  REQUIRE(gpu::tensor_map_bytes(good) == 9 * 208 + 200);
  const auto refused = [&](auto change, const char* text) {
    gpu::TensorMapSpec spec = good;
    change(spec);
    INFO(gpu::tensor_map_problem(spec));
    REQUIRE(gpu::tensor_map_problem(spec).find(text) != std::string::npos);
  };
  refused([](auto& s) { s.base = memory + 1; }, "aligned to 16");
  refused([](auto& s) { s.rank = 1; }, "rank 1");
  refused([](auto& s) { s.rank = 6; }, "rank 6");
  refused([](auto& s) { s.dim[1] = 0; }, "dimension 1 is 0");
  refused([](auto& s) { s.stride_bytes[0] = 216; }, "216 bytes");
  refused([](auto& s) { s.stride_bytes[0] = 192; }, "overlap");
  refused(
      [](auto& s) {
        s.rank = 3, s.dim[2] = s.box[2] = 1;
        s.stride_bytes[1] = 224;
      },
      "dimension 2 is 224 bytes, not a multiple of 208");
  refused([](auto& s) { s.box[1] = 257; }, "box 257");
  refused([](auto& s) { s.box[1] = 0; }, "box 0");
  refused([](auto& s) { s.box[0] = 128; }, "256 bytes with a swizzle of 128");
  refused([](auto& s) { s.box[0] = 32; }, "64 bytes with a swizzle of 128");
  refused([](auto& s) { s.swizzle = Swizzle::kNone, s.box[0] = 12; }, "24 bytes");
}

}  // namespace
}  // namespace assay
