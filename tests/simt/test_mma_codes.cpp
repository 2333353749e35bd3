// mma_m16n8k32: on the emulator in an image that has the instruction and in one that multiplies
// codes as bf16, on a GPU in its own.
#include <cmath>
#include <vector>

#include "base/small_float.h"
#include "tests/catch.h"
#include "tests/simt/machine.h"
#include "tests/simt/wrappers.h"

namespace assay::wrappers {
namespace {

using test::MachineArray;

Exec in_image(int image) {
  gpu::Context* const gpu = test::emulated(89);
  if (gpu == nullptr) return test::machine();
  gpu->kind.image = image;
  return {.gpu = gpu};
}

// 0.5 + a (16 x 32) b (32 x 8), row by row. PTX ISA, "Matrix fragments for mma.m16n8k32" with 8-bit
// elements.
std::vector<float> product(int image, Codes format, const std::vector<uint8_t>& a,
                           const std::vector<uint8_t>& b) {
  std::vector<uint32_t> a_lanes(32 * 4), b_lanes(32 * 2);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 16; ++i) {
      const int row = i < 4 || (i >= 8 && i < 12) ? g : g + 8;
      const int column = t * 4 + (i & 3) + (i < 8 ? 0 : 16);
      a_lanes[size_t(lane * 4 + i / 4)] |= uint32_t{a[size_t(row * 32 + column)]} << i % 4 * 8;
    }
    for (int i = 0; i < 8; ++i) {
      const int row = t * 4 + (i & 3) + (i < 4 ? 0 : 16);
      b_lanes[size_t(lane * 2 + i / 4)] |= uint32_t{b[size_t(row * 8 + g)]} << i % 4 * 8;
    }
  }
  const MachineArray<uint32_t> left(a_lanes), right(b_lanes);
  MachineArray<float> d(std::vector<float>(32 * 4, 0.5f));
  mma_codes(in_image(image), format, d.data(), left.data(), right.data());
  const std::vector<float> of_lanes = d.host();
  std::vector<float> rows(16 * 8);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      rows[size_t(row * 8 + column)] = of_lanes[size_t(lane * 4 + i)];
    }
  }
  return rows;
}

float number(Codes format, uint8_t code) {
  return format == Codes::kE4M3 ? e4m3::decode(code) : e5m2::decode(code);
}

}  // namespace

TEST_CASE("mma_m16n8k32 takes the fragments of the PTX ISA and every code") {
  constexpr uint8_t kOne = 0x38;  // e4m3
  for (const int image : {80, 89}) {
    for (const Codes format : {Codes::kE4M3, Codes::kE5M2}) {
      std::vector<uint8_t> a(16 * 32);
      for (size_t i = 0; i < a.size(); ++i) {
        const auto code = uint8_t(i * 37);
        a[i] = std::isfinite(number(format, code)) ? code : 0;
      }
      // Column n of b picks one column of a: 8 of its 32 at a time.
      for (int first = 0; first < 32; first += 8) {
        std::vector<uint8_t> b(32 * 8);
        for (int n = 0; n < 8; ++n) b[size_t((first + n) * 8 + n)] = kOne;
        const std::vector<float> d = product(image, format, a, b);
        for (int i = 0; i < 16 * 8; ++i) {
          const uint8_t code = a[size_t(i / 8 * 32 + first + i % 8)];
          INFO("image " << image << ", code " << int(code));
          REQUIRE(d[size_t(i)] == 0.5f + number(format, code));
        }
      }
      // The sum of all 32 products; codes of b below 2.
      std::vector<uint8_t> small(16 * 32), b(32 * 8);
      for (size_t i = 0; i < small.size(); ++i) small[i] = uint8_t(0x30 + i * 7 % 13);
      for (size_t i = 0; i < b.size(); ++i) b[i] = uint8_t((i % 3 ? 0x30 : 0xB0) + i * 5 % 11);
      const std::vector<float> d = product(image, format, small, b);
      for (int i = 0; i < 16 * 8; ++i) {
        double want = 0.5;
        for (int k = 0; k < 32; ++k) {
          want += double(number(format, small[size_t(i / 8 * 32 + k)])) *
                  double(number(Codes::kE4M3, b[size_t(k * 8 + i % 8)]));
        }
        REQUIRE(double(d[size_t(i)]) == want);
      }
      // A NaN is in the sums of its row alone.
      small[3 * 32 + 5] = 0x7F;
      const std::vector<float> with_nan = product(image, format, small, b);
      for (int i = 0; i < 16 * 8; ++i) REQUIRE(std::isnan(with_nan[size_t(i)]) == (i / 8 == 3));
    }
  }
}

}  // namespace assay::wrappers
