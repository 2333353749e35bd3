// The wrappers' results, on the emulator under several schedules or on a GPU, against references
// written from the PTX ISA's tables.
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "base/small_float.h"
#include "tests/catch.h"
#include "tests/simt/machine.h"
#include "tests/simt/wrappers.h"

namespace assay::wrappers {
namespace {

using gpu::Swizzle;
using test::machine;
using test::MachineArray;
using test::under_schedules;

// Small multiples of 1/4: sums of products are exact in float.
std::vector<bf16> numbers(int64_t count, int seed) {
  std::vector<bf16> x(static_cast<size_t>(count));
  uint32_t state = uint32_t(seed) * 2654435761u + 1;
  for (bf16& v : x) {
    state = state * 1664525u + 1013904223u;
    v = bf16(float(int(state >> 24) % 17 - 8) / 4.0f);
  }
  return x;
}

// --- wgmma

// Element (r, k) of a (rows, k) operand: K-major tensors are stored (rows, k), the others (k,
// rows).
struct Matrix {
  Side side;
  int rows, k;
  std::vector<bf16> x;
  MachineArray<bf16> device;

  Matrix(Side side, int rows, int k, int seed)
      : side(side), rows(rows), k(k), x(numbers(int64_t{rows} * k, seed)), device(x) {}
  float at(int r, int depth) const {
    return x[size_t(side == Side::kK ? r * k + depth : depth * rows + r)];
  }
  // The boxes that load a tile so that it has one of the canonical layouts.
  Operand operand(Swizzle swizzle) const {
    const int span = gpu::swizzle_span(swizzle), wide = span / 2;
    const int in_row = side == Side::kK ? k : rows, out_rows = side == Side::kK ? rows : k;
    Operand o = {};
    o.swizzle = swizzle;
    o.box_step = wide;
    o.boxes = (in_row + wide - 1) / wide;
    o.box_bytes = out_rows * span;
    if (swizzle != Swizzle::kNone) {
      o.stride_bytes = 8 * span;
      o.leading_bytes = side == Side::kK ? 0 : o.box_bytes;
      o.k_bytes = side == Side::kK ? 32 : 16 * span;
    } else {
      // Boxes are columns of 16 bytes; the next box has the next 8 of k, or of the rows.
      o.leading_bytes = side == Side::kK ? o.box_bytes : 128;
      o.stride_bytes = side == Side::kK ? 128 : o.box_bytes;
    }
    o.map = gpu::make_tensor_map({.name = "operand",
                                  .base = device.data(),
                                  .rank = 2,
                                  .dim = {in_row, out_rows},
                                  .stride_bytes = {in_row * 2},
                                  .box = {wide, out_rows},
                                  .swizzle = swizzle});
    return o;
  }
};

int depth_of(Swizzle swizzle) {
  return swizzle == Swizzle::k128 ? 64 : swizzle == Swizzle::k64 ? 32 : 16;
}

void require_product(const std::vector<float>& d, const Matrix& a, const Matrix& b, float initial) {
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < b.rows; ++column) {
      double want = double(initial);
      for (int k = 0; k < a.k; ++k) want += double(a.at(row, k)) * double(b.at(column, k));
      const float got = d[size_t(row * b.rows + column)];
      if (double(got) != want) {
        INFO("row " << row << " column " << column);
        REQUIRE(double(got) == want);
      }
    }
  }
}

TEST_CASE("wgmma of tiles loaded by TMA is the product, for every n, order and swizzle") {
  for (const Swizzle swizzle : {Swizzle::k128, Swizzle::k64, Swizzle::k32, Swizzle::kNone}) {
    for (const int n : {32, 64, 96, 128, 192, 256}) {
      for (const Side a_side : {Side::kK, Side::kMN}) {
        for (const Side b_side : {Side::kK, Side::kMN}) {
          INFO("span " << gpu::swizzle_span(swizzle) << " n " << n << " a " << int(a_side) << " b "
                       << int(b_side));
          const int k = depth_of(swizzle);
          const Matrix a(a_side, 64, k, n), b(b_side, n, k, n + 1);
          const int accumulate = n % 64 == 0;
          MachineArray<float> d(size_t(64 * n));
          wgmma(machine(), n, a_side, b_side,
                {.d = d.data(),
                 .a_registers = nullptr,
                 .a = a.operand(swizzle),
                 .b = b.operand(swizzle),
                 .k = k,
                 .accumulate = accumulate,
                 .initial = 3.0f});
          require_product(d.host(), a, b, accumulate ? 3.0f : 0.0f);
        }
      }
    }
  }
}

TEST_CASE("wgmma under schedules; a from registers") {
  under_schedules([] {
    for (const int n : {32, 64, 96, 128, 192, 256}) {
      for (const Side b_side : {Side::kK, Side::kMN}) {
        INFO("n " << n << " b " << int(b_side));
        const Matrix a(Side::kK, 64, 64, n), b(b_side, n, 64, n + 1);
        MachineArray<float> d(size_t(64 * n));
        const WgmmaTest test = {.d = d.data(),
                                .a_registers = a.device.data(),
                                .a = a.operand(Swizzle::k128),
                                .b = b.operand(Swizzle::k128),
                                .k = 64,
                                .accumulate = 1,
                                .initial = -2.0f};
        wgmma(machine(), n, Side::kK, b_side, test);
        require_product(d.host(), a, b, -2.0f);
        wgmma_registers(machine(), n, b_side, test);
        require_product(d.host(), a, b, -2.0f);
      }
    }
  });
}

// Rows of 128 codes, of numbers that both formats can represent.
template <typename Element>
struct CodeMatrix {
  static constexpr int kK = 128;
  int rows;
  std::vector<bf16> x;
  MachineArray<uint8_t> device;

  CodeMatrix(int rows, int seed)
      : rows(rows), x(numbers(int64_t{rows} * kK, seed)), device(codes_of(x)) {}
  static std::vector<uint8_t> codes_of(const std::vector<bf16>& x) {
    std::vector<uint8_t> codes;
    for (const bf16 v : x) codes.push_back(Element(float(v)).bits);
    return codes;
  }
  Operand operand() const {
    return {.map = gpu::make_tensor_map({
                .name = "codes",
                .base = reinterpret_cast<const bf16*>(device.data()),
                .rank = 2,
                .dim = {kK / 2, rows},
                .stride_bytes = {kK},
                .box = {kK / 2, rows},
            }),
            .swizzle = Swizzle::k128,
            .boxes = 1,
            .box_bytes = rows * kK,
            .box_step = 0,
            .leading_bytes = 0,
            .stride_bytes = 1024,
            .k_bytes = 32};
  }
};

template <typename Element>
void require_product_of_codes(Codes format) {
  const CodeMatrix<Element> a(64, 5);
  const CodeMatrix<e4m3> b(128, 6);
  constexpr int kK = 128;
  for (const int accumulate : {0, 1}) {
    MachineArray<float> d(size_t(64 * 128));
    wgmma_codes(machine(), format,
                {.d = d.data(),
                 .a_registers = nullptr,
                 .a = a.operand(),
                 .b = b.operand(),
                 .k = kK,
                 .accumulate = accumulate,
                 .initial = 3.0f});
    const auto got = d.host();
    std::vector<float> want;
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < 128; ++column) {
        want.push_back(accumulate ? 3.0f : 0.0f);
        for (int k = 0; k < kK; ++k)
          want.back() += float(a.x[size_t(row * kK + k)]) * float(b.x[size_t(column * kK + k)]);
      }
    }
    REQUIRE((got == want));
  }
}

TEST_CASE("wgmma of 8-bit codes is the product of the decoded numbers, under schedules") {
  under_schedules([] {
    require_product_of_codes<e4m3>(Codes::kE4M3);
    require_product_of_codes<e5m2>(Codes::kE5M2);
  });
}

// --- TMA

struct Tensor {
  int rank;
  std::vector<int> dim, box;  // 5 each, 1 beyond the rank
  Swizzle swizzle;
  int pitch;  // elements of a row; at least dim[0]

  int64_t index(const std::vector<int>& x) const {  // element of the stored tensor
    int64_t i = 0;
    for (size_t d = 4; d >= 1; --d) i = (i + x[d]) * (d == 1 ? pitch : dim[d - 1]);
    return i + x[0];
  }
  int64_t elements() const { return int64_t{pitch} * dim[1] * dim[2] * dim[3] * dim[4]; }
  int box_elements() const { return box[0] * box[1] * box[2] * box[3] * box[4]; }
  gpu::TensorMap map(const void* base) const {
    gpu::TensorMapSpec spec = {
        .name = "tensor", .base = static_cast<const bf16*>(base), .rank = rank, .swizzle = swizzle};
    int64_t stride = pitch * 2;
    for (size_t d = 0; d < size_t(rank); ++d) {
      spec.dim[d] = dim[d];
      spec.box[d] = box[d];
      if (d + 1 < size_t(rank)) spec.stride_bytes[d] = stride;
      stride *= dim[d + 1 < 5 ? d + 1 : 4];
    }
    return gpu::make_tensor_map(spec);
  }
  // Calls f(element of the shared tile, element of the tensor or -1) for the box at `at`.
  template <typename F>
  void for_each(const std::vector<int>& at, F f) const {
    for (int i = 0; i < box_elements(); ++i) {
      std::vector<int> x(5);
      int rest = i;
      bool inside = true;
      for (size_t d = 0; d < 5; ++d) {
        x[d] = at[d] + rest % box[d];
        rest /= box[d];
        inside = inside && x[d] >= 0 && x[d] < dim[d];
      }
      const int row = i / box[0], column = i % box[0];
      int piece = column / 8;
      if (swizzle == Swizzle::k128) piece ^= row % 8;
      if (swizzle == Swizzle::k64) piece ^= row / 2 % 4;
      if (swizzle == Swizzle::k32) piece ^= row / 4 % 2;
      f(row * box[0] + piece * 8 + column % 8, inside ? index(x) : int64_t{-1});
    }
  }
};

const Tensor kTensors[] = {
    {2, {100, 70, 1, 1, 1}, {64, 32, 1, 1, 1}, Swizzle::k128, 104},
    {2, {64, 9, 1, 1, 1}, {32, 20, 1, 1, 1}, Swizzle::k64, 64},
    {2, {20, 30, 1, 1, 1}, {16, 16, 1, 1, 1}, Swizzle::k32, 24},
    {2, {50, 12, 1, 1, 1}, {40, 5, 1, 1, 1}, Swizzle::kNone, 56},
    {3, {72, 10, 4, 1, 1}, {64, 6, 2, 1, 1}, Swizzle::k128, 72},
    {4, {40, 5, 4, 3, 1}, {32, 3, 2, 2, 1}, Swizzle::k64, 40},
    {5, {24, 4, 3, 3, 2}, {16, 3, 2, 2, 2}, Swizzle::k32, 24},
};
// The innermost coordinate is a multiple of 16 bytes.
const std::vector<int> kPlaces[] = {
    {0, 0, 0, 0, 0},   {8, 3, 1, 1, 0},   {-8, -2, 0, 1, 1},    {40, 4, 3, 2, 0},
    {200, 0, 0, 0, 0}, {0, -40, 0, 0, 0}, {-16, 0, -1, -1, -1},
};

std::vector<int> place_in(const Tensor& tensor, std::vector<int> at) {
  for (size_t d = size_t(tensor.rank); d < 5; ++d) at[d] = 0;
  return at;
}
std::vector<uint16_t> counted(int64_t count) {
  std::vector<uint16_t> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = uint16_t(i * 7 + 1);
  return x;
}

TEST_CASE("tma_load: boxes of rank 2 to 5, swizzles, zeros outside") {
  under_schedules([] {
    for (const Tensor& tensor : kTensors) {
      const std::vector<uint16_t> host = counted(tensor.elements());
      const MachineArray<uint16_t> device(host);
      for (const auto& place : kPlaces) {
        const std::vector<int> at = place_in(tensor, place);
        INFO("rank " << tensor.rank << " span " << gpu::swizzle_span(tensor.swizzle) << " at "
                     << at[0] << " " << at[1] << " " << at[2] << " " << at[3] << " " << at[4]);
        MachineArray<uint16_t> tile(size_t(tensor.box_elements()));
        tma_load(machine(), {.tile = tile.data(),
                             .map = tensor.map(device.data()),
                             .rank = tensor.rank,
                             .at = {at[0], at[1], at[2], at[3], at[4]},
                             .bytes = tensor.box_elements() * 2});
        const std::vector<uint16_t> got = tile.host();
        std::vector<uint16_t> want(got.size(), 0xDEAD);
        tensor.for_each(at, [&](int shared, int64_t global) {
          want[size_t(shared)] = global < 0 ? uint16_t{0} : host[size_t(global)];
        });
        REQUIRE(got == want);
      }
    }
  });
}

TEST_CASE("tma_load_multicast: the box in the shared memory of each block of the mask") {
  under_schedules([] {
    for (const Tensor& tensor : kTensors) {
      if (tensor.rank > 3) continue;
      const std::vector<uint16_t> host = counted(tensor.elements());
      const MachineArray<uint16_t> device(host);
      const size_t elements = size_t(tensor.box_elements());
      for (const auto& [blocks, to] :
           {std::pair{1, 1u}, std::pair{2, 3u}, std::pair{4, 6u}, std::pair{8, 0x81u}}) {
        const std::vector<int> at = place_in(tensor, kPlaces[size_t(blocks) % 3]);
        INFO("rank " << tensor.rank << ", " << blocks << " blocks");
        MachineArray<uint16_t> tiles(size_t(blocks) * elements);
        tma_load_multicast(machine(), {.tiles = tiles.data(),
                                       .map = tensor.map(device.data()),
                                       .rank = tensor.rank,
                                       .at = {at[0], at[1], at[2]},
                                       .bytes = tensor.box_elements() * 2,
                                       .blocks = blocks,
                                       .to = to});
        std::vector<uint16_t> want(size_t(blocks) * elements, 7);
        for (size_t block = 0; block < size_t(blocks); ++block) {
          if ((to >> block & 1) == 0) continue;
          tensor.for_each(at, [&](int shared, int64_t global) {
            want[block * elements + size_t(shared)] =
                global < 0 ? uint16_t{0} : host[size_t(global)];
          });
        }
        REQUIRE(tiles.host() == want);
      }
    }
  });
}

TEST_CASE("tma_store writes only elements inside the tensor") {
  under_schedules([] {
    for (const Tensor& tensor : kTensors) {
      if (tensor.rank > 3) continue;
      const std::vector<uint16_t> tile_host = counted(tensor.box_elements());
      const MachineArray<uint16_t> tile(tile_host);
      for (const auto& place : kPlaces) {
        const std::vector<int> at = place_in(tensor, place);
        std::vector<uint16_t> want(size_t(tensor.elements()), 0xABCD);
        MachineArray<uint16_t> device(want);
        tma_store(machine(), {.map = tensor.map(device.data()),
                              .tile = tile.data(),
                              .rank = tensor.rank,
                              .at = {at[0], at[1], at[2]},
                              .bytes = tensor.box_elements() * 2});
        tensor.for_each(at, [&](int shared, int64_t global) {
          if (global >= 0) want[size_t(global)] = tile_host[size_t(shared)];
        });
        REQUIRE(device.host() == want);
      }
    }
  });
}

TEST_CASE("bulk_load and cp.async copy; pieces of 0 bytes become zero") {
  under_schedules([] {
    for (const int elements : {8, 256, 1000, 2048}) {
      const std::vector<uint16_t> host = counted(elements);
      const MachineArray<uint16_t> in(host);
      MachineArray<uint16_t> out(host.size());
      bulk_load(machine(), {.out = out.data(), .in = in.data(), .elements = elements});
      REQUIRE(out.host() == host);
      std::vector<uint16_t> thirds = host;
      for (size_t i = 0; i < thirds.size(); ++i)
        if (i / 8 % 3 == 2) thirds[i] = 0;
      cp_async(machine(), {.out = out.data(), .in = in.data(), .elements = elements});
      REQUIRE(out.host() == thirds);
      if (elements <= 256) {
        MachineArray<uint16_t> again(host.size());
        cp_async_mbarrier(machine(), {.out = again.data(), .in = in.data(), .elements = elements});
        REQUIRE(again.host() == host);
      }
    }
  });
}

// --- mma.sync

// PTX ISA, "Matrix fragments for mma.m16n8k16": rows and columns of a lane's a0..a7, b0..b3,
// c0..c3.
int a_row(int lane, int i) {
  return lane / 4 + ((i >= 0 && i < 2) || (i >= 4 && i < 6) ? 0 : 8);
}
int a_column(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8);
}
int b_row(int lane, int i) {
  return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8);
}
int b_column(int lane) {
  return lane / 4;
}
int c_row(int lane, int i) {
  return lane / 4 + (i < 2 ? 0 : 8);
}
int c_column(int lane, int i) {
  return lane % 4 * 2 + (i & 1);
}

TEST_CASE("mma_m16n8k16 takes and gives the fragments of the PTX ISA") {
  const std::vector<bf16> a = numbers(16 * 16, 5), b = numbers(16 * 8, 6);
  std::vector<uint32_t> a_lanes(32 * 4), b_lanes(32 * 2);
  std::vector<float> d_lanes(32 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const bf16 x = a[size_t(a_row(lane, i) * 16 + a_column(lane, i))];
      a_lanes[size_t(lane * 4 + i / 2)] |= uint32_t{x.bits} << (i % 2 * 16);
    }
    for (int i = 0; i < 4; ++i) {
      const bf16 x = b[size_t(b_row(lane, i) * 8 + b_column(lane))];
      b_lanes[size_t(lane * 2 + i / 2)] |= uint32_t{x.bits} << (i % 2 * 16);
      d_lanes[size_t(lane * 4 + i)] = float(c_row(lane, i)) + float(c_column(lane, i)) / 8;
    }
  }
  under_schedules([&] {
    const MachineArray<uint32_t> left(a_lanes), right(b_lanes);
    MachineArray<float> d(d_lanes);
    mma(machine(), d.data(), left.data(), right.data());
    const std::vector<float> got = d.host();
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = c_row(lane, i), column = c_column(lane, i);
        double want = double(row) + double(column) / 8;
        for (int k = 0; k < 16; ++k)
          want += double(a[size_t(row * 16 + k)]) * double(b[size_t(k * 8 + column)]);
        REQUIRE(double(got[size_t(lane * 4 + i)]) == want);
      }
    }
  });
}

TEST_CASE("floats added in memory: subnormal numbers are zeros of their sign") {
  const float least = 0x1p-126f, small = 0x1.8p-127f;
  //                         normal  memory  added   sum     both    zeros  both     infinite
  const std::vector<float> old{1.5f, small, -least, -1.5f * least, -small, -0.0f, small, 1.0f};
  const std::vector<float> add{0.25f, least, small, least, -small, -0.0f, small, HUGE_VALF};
  const std::vector<float> want{1.75f, least, -least, -0.0f, -0.0f, -0.0f, 0.0f, HUGE_VALF};
  const MachineArray<float> sums(old), v(add);
  reduce_add(machine(), sums.data(), v.data(), int(old.size()));
  const std::vector<float> got = sums.host();
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": " << got[i] << ", want " << want[i]);
    REQUIRE(std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]));
  }
}

TEST_CASE("ldmatrix, its transpose and stmatrix move 8 x 8 matrices") {
  const std::vector<bf16> a = numbers(16 * 16, 7), b = numbers(16 * 16, 8);
  std::vector<uint16_t> a_bits(256), b_bits(256), want(256);
  for (size_t i = 0; i < 256; ++i) {
    a_bits[i] = a[i].bits;
    b_bits[i] = b[i].bits;
    float sum = 0;
    for (size_t k = 0; k < 16; ++k) sum += float(a[i / 16 * 16 + k]) * float(b[k * 16 + i % 16]);
    want[i] = bf16(sum).bits;
  }
  under_schedules([&] {
    const MachineArray<uint16_t> left(a_bits), right(b_bits);
    MachineArray<uint16_t> c(256);
    mma_matrices(machine(), c.data(), left.data(), right.data());
    REQUIRE(c.host() == want);
    if (gpu::Context* const ampere = test::emulated(80)) {  // without stmatrix
      MachineArray<uint16_t> same(256);
      mma_matrices({.gpu = ampere}, same.data(), left.data(), right.data());
      REQUIRE(same.host() == want);
    }
  });
}

TEST_CASE("warpgroups exchange registers and meet at a named barrier") {
  under_schedules([] {
    MachineArray<float> out(384);
    registers(machine(), out.data());
    REQUIRE(out.host() == std::vector<float>(384, 1.0f));
  });
}

}  // namespace
}  // namespace assay::wrappers
