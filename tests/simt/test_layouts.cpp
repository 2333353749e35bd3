// Where wgmma and TMA read and write elements, against formulas written from the PTX ISA's text,
// independent of cuda/simt.
#include <vector>

#include "cuda/simt/wgmma_math.h"
#include "tests/catch.h"

namespace assay::simt {
namespace {

TEST_CASE("the swizzles match the figures of the PTX ISA") {
  struct Row {
    uint32_t span, row, piece, byte;
  };
  // For a tile with rows of `span` bytes, aligned to 1024: piece (16 bytes) of a row -> byte of the
  // tile.
  const Row table[] = {
      {128, 0, 0, 0},   {128, 0, 5, 80},   {128, 1, 0, 144},  {128, 1, 1, 128},  {128, 3, 5, 480},
      {128, 7, 7, 896}, {128, 7, 0, 1008}, {128, 8, 2, 1056}, {128, 9, 2, 1200}, {64, 0, 3, 48},
      {64, 1, 0, 64},   {64, 2, 1, 128},   {64, 3, 0, 208},   {64, 5, 1, 368},   {64, 7, 3, 448},
      {64, 8, 3, 560},  {32, 0, 1, 16},    {32, 3, 0, 96},    {32, 4, 0, 144},   {32, 7, 1, 224},
      {32, 8, 0, 256},  {16, 1, 0, 16},    {16, 9, 0, 144},
  };
  for (const Row& r : table) {
    INFO("span " << r.span << " row " << r.row << " piece " << r.piece);
    REQUIRE(swizzled(r.row * r.span + r.piece * 16, r.span) == r.byte);
  }
}

// One mode of a layout in CuTe's notation, (s0, s1, ..) : (d0, d1, ..), in elements.
struct Mode {
  std::vector<uint32_t> shape, stride;
  uint32_t operator()(uint32_t i) const {
    uint32_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      offset += (d + 1 == shape.size() ? i : i % shape[d]) * stride[d];
      i /= shape[d];
    }
    return offset;
  }
};
// CuTe's Swizzle<bits, 4, 3> of a byte address: XORs bits [7, 7 + bits) onto bits [4, 4 + bits).
uint32_t cute_swizzle(uint32_t byte, int bits) {
  uint32_t result = byte;
  for (int i = 0; i < bits; ++i)
    if (byte & (1u << (7 + i))) result ^= 1u << (4 + i);
  return result;
}

TEST_CASE("operands of wgmma have the canonical layouts") {
  constexpr uint32_t T = 8, kLeading = 4096, kStride = 2048, kStart = 3072;
  const uint32_t lbo = kLeading / 2, sbo = kStride / 2;
  for (int bits = 0; bits <= 3; ++bits) {
    const uint32_t span = 16u << bits, pieces = 1u << bits;
    const WgmmaTile tile = {.start = kStart, .leading = kLeading, .stride = kStride, .span = span};
    // "Canonical layouts" of wgmma, in the order of the table's columns.
    const Mode k_rows = {{8, 32}, {pieces * T, sbo}};
    const Mode k_columns = {{T, 2}, {1, bits == 0 ? lbo : T}};
    const Mode mn_rows =
        bits == 0 ? Mode{{T, 1, 32}, {1, T, sbo}} : Mode{{T, pieces, 32}, {1, T, lbo}};
    const Mode mn_columns = bits == 0 ? Mode{{8, 2}, {T, lbo}} : Mode{{8, 2}, {pieces * T, sbo}};
    for (int r = 0; r < 256; ++r) {
      for (int k = 0; k < 16; ++k) {
        INFO("bits " << bits << " r " << r << " k " << k);
        const uint32_t k_major = 2 * (k_rows(uint32_t(r)) + k_columns(uint32_t(k)));
        REQUIRE(wgmma_address(tile, TileOrder::kKMajor, r, k) + uint32_t(k) % 8 * 2 ==
                cute_swizzle(kStart + k_major, bits));
        const uint32_t mn_major = 2 * (mn_rows(uint32_t(r)) + mn_columns(uint32_t(k)));
        REQUIRE(wgmma_address(tile, TileOrder::kMNMajor, r, k) + uint32_t(r) % 8 * 2 ==
                cute_swizzle(kStart + mn_major, bits));
      }
    }
  }
}

// The layout that kernels use: atoms of 8 rows of 128 bytes, with piece XOR row.
TEST_CASE("tiles with a 128-byte swizzle, step by step of k") {
  for (int step = 0; step < 4; ++step) {
    const WgmmaTile by_k = {.start = uint32_t(2048 + 32 * step), .stride = 1024, .span = 128};
    const WgmmaTile by_mn = {
        .start = uint32_t(2048 + 2048 * step), .leading = 8192, .stride = 1024, .span = 128};
    for (int r = 0; r < 128; ++r) {
      for (int k = 0; k < 16; ++k) {
        const int depth = 16 * step + k;
        REQUIRE(wgmma_address(by_k, TileOrder::kKMajor, r, k) ==
                uint32_t(2048 + r / 8 * 1024 + r % 8 * 128 + (depth / 8 ^ r % 8) * 16));
        REQUIRE(wgmma_address(by_mn, TileOrder::kMNMajor, r, k) ==
                uint32_t(2048 + r / 64 * 8192 + depth / 8 * 1024 + depth % 8 * 128 +
                         (r % 64 / 8 ^ depth % 8) * 16));
      }
    }
  }
}

TEST_CASE("a descriptor is decoded as in the PTX ISA") {
  const uint64_t bits = uint64_t{0x1234} | uint64_t{0x0ABC} << 16 | uint64_t{0x3FFF} << 32 |
                        uint64_t{5} << 49 | uint64_t{2} << 62;
  const WgmmaTile tile = wgmma_tile(bits);
  REQUIRE(tile.start == 0x12340);
  REQUIRE(tile.leading == 0xABC0);
  REQUIRE(tile.stride == 0x3FFF0);
  REQUIRE(tile.base_offset == 5);
  REQUIRE(tile.span == 64);
  REQUIRE(wgmma_tile(uint64_t{0} << 62).span == 16);
  REQUIRE(wgmma_tile(uint64_t{1} << 62).span == 128);
  REQUIRE(wgmma_tile(uint64_t{3} << 62).span == 32);
}

TEST_CASE("products equal plain loops") {
  std::vector<float> a(64 * 16), b(16 * 256), d(64 * 256), want(64 * 256);
  for (int n : {32, 96, 256}) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 7 % 23) - 11);
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(int(i * 5 % 19) - 9);
    for (size_t i = 0; i < d.size(); ++i) d[i] = want[i] = float(i % 13);
    for (int row = 0; row < 64; ++row)
      for (int column = 0; column < n; ++column)
        for (int k = 0; k < 16; ++k) {
          want[size_t(row * n + column)] += a[size_t(k * 64 + row)] * b[size_t(k * n + column)];
        }
    wgmma_multiply(d.data(), a.data(), b.data(), n);
    REQUIRE(d == want);
  }
  std::vector<float> small(16 * 8, 1.0f), small_want(16 * 8, 1.0f);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < 16; ++k)
        small_want[size_t(row * 8 + column)] += a[size_t(row * 16 + k)] * b[size_t(k * 8 + column)];
  mma_multiply(small.data(), a.data(), b.data());
  REQUIRE(small == small_want);
}

}  // namespace
}  // namespace assay::simt
