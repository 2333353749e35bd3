// Products of a warp and the loads and stores of their fragments. Fragment layouts: PTX ISA,
// "Matrix fragments for mma.m16n8k16" with 16-bit elements and "mma.m16n8k32" with 8-bit ones,
// "ldmatrix" and "stmatrix" (.m8n8), repeated in cuda/kernel/mma.h.
#include "cuda/simt/mma.h"

#include <bit>
#include <cstring>

#include "base/small_float.h"
#include "cuda/simt/block.h"
#include "cuda/simt/wgmma_math.h"

namespace assay::simt {

namespace {

constexpr uint32_t kFullWarp = 0xFFFFFFFFu;

float low(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
float high(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000u);
}

struct Product {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
  SourceLocation here;
};

void need_full_warp(const char* what, uint32_t mask, SourceLocation here) {
  if (mask != kFullWarp) {
    fail(here, "%s: all 32 lanes must call it, only lanes 0x%08x did", what, mask);
  }
}

void multiply(void* const (&args)[kWarpLanes], uint32_t mask) {
  need_full_warp("mma_m16n8k16", mask, static_cast<Product*>(args[self().lane])->here);
  float a[16 * 16], b[16 * 8], d[16 * 8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const Product& p = *static_cast<Product*>(args[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      float* const to = a + (g + i % 2 * 8) * 16 + i / 2 * 8 + 2 * t;
      to[0] = low(p.a[i]);
      to[1] = high(p.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      float* const to = b + (i * 8 + 2 * t) * 8 + g;
      to[0] = low(p.b[i]);
      to[8] = high(p.b[i]);
    }
    for (int i = 0; i < 2; ++i) std::memcpy(d + (g + i * 8) * 8 + 2 * t, p.d + 2 * i, 8);
  }
  mma_multiply(d, a, b);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const Product& p = *static_cast<Product*>(args[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) std::memcpy(p.d + 2 * i, d + (g + i * 8) * 8 + 2 * t, 8);
  }
}

// The value of each 8-bit code.
template <typename Element>
struct Numbers {
  float of_code[256];
  Numbers() {
    for (uint32_t code = 0; code < 256; ++code) of_code[code] = Element::decode(code);
  }
};

template <typename A>
void multiply_codes(void* const (&args)[kWarpLanes], uint32_t mask) {
  need_full_warp("mma_m16n8k32", mask, static_cast<Product*>(args[self().lane])->here);
  static const Numbers<A> of_a;
  static const Numbers<e4m3> of_b;
  // Two products of 16 along K: a[half][row][k], b[half][k][column].
  float a[2][16 * 16], b[2][16 * 8], d[16 * 8];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const Product& p = *static_cast<Product*>(args[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) {
        const auto code = [&](uint32_t four) { return four >> 8 * i & 0xFFu; };
        a[half][g * 16 + 4 * t + i] = of_a.of_code[code(p.a[2 * half])];
        a[half][(g + 8) * 16 + 4 * t + i] = of_a.of_code[code(p.a[2 * half + 1])];
        b[half][(4 * t + i) * 8 + g] = of_b.of_code[code(p.b[half])];
      }
    }
    for (int i = 0; i < 2; ++i) std::memcpy(d + (g + i * 8) * 8 + 2 * t, p.d + 2 * i, 8);
  }
  for (int half = 0; half < 2; ++half) mma_multiply(d, a[half], b[half]);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const Product& p = *static_cast<Product*>(args[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 2; ++i) std::memcpy(p.d + 2 * i, d + (g + i * 8) * 8 + 2 * t, 8);
  }
}

// Rows of four 8 x 8 matrices: lane 8 i + j passes the address of row j of matrix i.
struct Rows {
  std::byte* row;
  uint32_t* loaded;
  const uint32_t* stored;
  SourceLocation here;
};

void load(void* const (&args)[kWarpLanes], uint32_t mask) {
  need_full_warp("ldmatrix_x4", mask, static_cast<Rows*>(args[self().lane])->here);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Rows& from = *static_cast<Rows*>(args[8 * i + lane / 4]);
      std::memcpy(static_cast<Rows*>(args[lane])->loaded + i, from.row + lane % 4 * 4, 4);
    }
  }
}

void load_transposed(void* const (&args)[kWarpLanes], uint32_t mask) {
  need_full_warp("ldmatrix_x4_trans", mask, static_cast<Rows*>(args[self().lane])->here);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      uint16_t pair[2];
      for (int half = 0; half < 2; ++half) {
        const Rows& from = *static_cast<Rows*>(args[8 * i + lane % 4 * 2 + half]);
        std::memcpy(pair + half, from.row + lane / 4 * 2, 2);
      }
      std::memcpy(static_cast<Rows*>(args[lane])->loaded + i, pair, 4);
    }
  }
}

void store(void* const (&args)[kWarpLanes], uint32_t mask) {
  need_full_warp("stmatrix_x4", mask, static_cast<Rows*>(args[self().lane])->here);
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Rows& to = *static_cast<Rows*>(args[8 * i + lane / 4]);
      std::memcpy(to.row + lane % 4 * 4, static_cast<Rows*>(args[lane])->stored + i, 4);
    }
  }
}

constexpr size_t kRowBytes = 16;

}  // namespace

void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                  SourceLocation here) {
  Product p = {d, a, b, here};
  warp_collective("mma_m16n8k16", here, kFullWarp, &p, multiply);
}

void mma_m16n8k32(float (&d)[4], bool a_is_e4m3, const uint32_t (&a)[4], const uint32_t (&b)[2],
                  SourceLocation here) {
  Product p = {d, a, b, here};
  warp_collective(a_is_e4m3 ? "mma_m16n8k32 e4m3" : "mma_m16n8k32 e5m2", here, kFullWarp, &p,
                  a_is_e4m3 ? multiply_codes<e4m3> : multiply_codes<e5m2>);
}

void ldmatrix_x4(uint32_t (&r)[4], const void* row, SourceLocation here) {
  check_shared("ldmatrix_x4", here, row, kRowBytes, kRowBytes);
  note_read(row, kRowBytes, here);
  Rows rows = {static_cast<std::byte*>(const_cast<void*>(row)), r, nullptr, here};
  warp_collective("ldmatrix_x4", here, kFullWarp, &rows, load);
}

void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, SourceLocation here) {
  check_shared("ldmatrix_x4_trans", here, row, kRowBytes, kRowBytes);
  note_read(row, kRowBytes, here);
  Rows rows = {static_cast<std::byte*>(const_cast<void*>(row)), r, nullptr, here};
  warp_collective("ldmatrix_x4_trans", here, kFullWarp, &rows, load_transposed);
}

void stmatrix_x4(void* row, const uint32_t (&r)[4], SourceLocation here) {
  check_shared("stmatrix_x4", here, row, kRowBytes, kRowBytes);
  note_write(row, kRowBytes, here);
  Rows rows = {static_cast<std::byte*>(row), nullptr, r, here};
  warp_collective("stmatrix_x4", here, kFullWarp, &rows, store);
}

}  // namespace assay::simt
