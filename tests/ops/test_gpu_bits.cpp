// Bits of the GPU's kernels that do not depend on how many SMs walk a list, and those of floats
// that the memory adds, on the SIMT emulator.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "cuda/simt/context.h"
#include "ops/attention.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_swiglu.h"
#include "ops/rope.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using test::DeviceArray;

std::vector<float> random_floats(int64_t count, float spread, const char* name) {
  RandomSequence random({3, stream_id(name)});
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = spread * (2 * random.uniform() - 1);
  return x;
}
std::vector<bf16> random_bf16(int64_t count, float spread, const char* name) {
  std::vector<bf16> x;
  for (const float v : random_floats(count, spread, name)) x.push_back(bf16(v));
  return x;
}

enum class Rows { kInOrder, kGathered };
struct Shape {
  std::vector<int32_t> loads;
  int64_t out, in;
  Rows rows;
};

// dweight after one product.
std::vector<float> weight_gradient(gpu::Context& gpu, const Shape& s, float spread,
                                   const std::vector<float>& begin,
                                   GradientSum sum = GradientSum::kAdd) {
  std::vector<int32_t> offsets{0}, row;
  for (const int32_t n : s.loads) offsets.push_back(offsets.back() + n);
  const int64_t assignments = offsets.back(), experts = int64_t(s.loads.size());
  for (int64_t a = 0; a < assignments; ++a) row.push_back(int32_t(a * 7 % assignments));
  const DeviceArray<float> dweight(begin);
  const DeviceArray<bf16> dy(random_bf16(assignments * s.out, spread, "dy")),
      x(random_bf16(assignments * s.in, spread, "x"));
  const DeviceArray<int32_t> at(offsets), gather(row);
  const int64_t bytes =
      grouped_workspace_bytes<bf16>(Backend::kGpu, assignments, experts, s.out, s.in);
  const DeviceArray<std::byte> workspace(size_t(bytes), 256);
  GroupedWgrad<bf16> a{.dweight = {dweight.data(), {experts, s.out, s.in}},
                       .dy = {dy.data(), {assignments, s.out}},
                       .x = {x.data(), {assignments, s.in}},
                       .offsets = {at.data(), {experts + 1}},
                       .sum = sum};
  if (s.rows == Rows::kGathered) a.row = {gather.data(), {assignments}};
  grouped_linear_wgrad<bf16>({.workspace = {workspace.data(), {bytes}}, .gpu = &gpu}, a);
  return dweight.host();
}

gpu::Context with_multiprocessors(int count) {
  gpu::Context gpu = simt::make_context();
  gpu.multiprocessors = count;
  return gpu;
}

const std::vector<Shape> kShapes = {
    {{0, 1, 63, 65, 129, 64, 0}, 264, 456, Rows::kInOrder},  // 192 columns a tile, with edges
    {{3, 0, 70}, 136, 256, Rows::kGathered},                 // 256
    {{40, 0, 7, 0}, 72, 104, Rows::kGathered},               // 128
    {{3, 16385, 0, 33000}, 8, 24, Rows::kInOrder},           // pieces of experts
};
int64_t weights(const Shape& s) {
  return int64_t(s.loads.size()) * s.out * s.in;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("experts' weight gradients have the same bits from blocks with many tiles and with one") {
  gpu::Context one = with_multiprocessors(1), seven = with_multiprocessors(7),
               all = simt::make_context();
  for (const Shape& s : kShapes) {
    INFO("out " << s.out);
    const std::vector<float> begin = random_floats(weights(s), 1, "dweight");
    const std::vector<float> want = weight_gradient(all, s, 1, begin);
    REQUIRE(!same_bits(want, begin));
    REQUIRE(same_bits(weight_gradient(one, s, 1, begin), want));
    REQUIRE(same_bits(weight_gradient(seven, s, 1, begin), want));
  }
}

// Results of one product: y, or what SwiGLU makes of it.
struct Results {
  std::vector<bf16> first, second;
  int same_bits(const Results& other) const {
    return first.size() == other.first.size() && second.size() == other.second.size() &&
           std::memcmp(first.data(), other.first.data(), first.size() * 2) == 0 &&
           std::memcmp(second.data(), other.second.data(), second.size() * 2) == 0;
  }
};

struct Products {
  explicit Products(const Shape& s)
      : experts(int64_t(s.loads.size())),
        assignments(sum(s.loads)),
        out(s.out),
        in(s.in),
        gathers(s.rows == Rows::kGathered),
        a(random_bf16(assignments * std::max(out, in), 1, "a")),
        gate_up(random_bf16(assignments * 2 * in, 1, "gate_up")),
        weight(random_bf16(experts * out * in, 1, "weight")),
        offsets(offsets_of(s.loads)),
        row(rows_of(assignments)),
        workspace(
            size_t(grouped_workspace_bytes<bf16>(Backend::kGpu, assignments, experts, out, in)),
            256) {}

  Exec on(gpu::Context& gpu) const {
    return {.workspace = {workspace.data(), {int64_t(workspace.host().size())}}, .gpu = &gpu};
  }
  View<const int32_t, 1> offsets_view() const { return {offsets.data(), {experts + 1}}; }
  View<const int32_t, 1> row_view() const {
    if (!gathers) return {};
    return {row.data(), {assignments}};
  }
  WeightStack<bf16> stack() const {
    return {.plain = {weight.data(), {experts, out, in}}, .packed = {}};
  }

  Results forward(gpu::Context& gpu) const {
    const DeviceArray<bf16> y(size_t(assignments * out));
    grouped_linear_forward<bf16>(on(gpu), {.y = {y.data(), {assignments, out}},
                                           .x = {a.data(), {assignments, in}},
                                           .row = row_view(),
                                           .offsets = offsets_view(),
                                           .weight = stack()});
    return {y.host(), {}};
  }
  Results dgrad(gpu::Context& gpu) const {
    const DeviceArray<bf16> dx(size_t(assignments * in));
    grouped_linear_dgrad<bf16>(on(gpu), {.dx = {dx.data(), {assignments, in}},
                                         .dy = {a.data(), {assignments, out}},
                                         .offsets = offsets_view(),
                                         .weight = stack()});
    return {dx.host(), {}};
  }
  Results swiglu_forward(gpu::Context& gpu) const {
    const DeviceArray<bf16> h(size_t(assignments * out / 2)), both(size_t(assignments * out));
    grouped_swiglu_forward<bf16>(on(gpu), {.h = {h.data(), {assignments, out / 2}},
                                           .gate_up = {both.data(), {assignments, out}},
                                           .x = {a.data(), {assignments, in}},
                                           .row = row_view(),
                                           .offsets = offsets_view(),
                                           .weight = stack()});
    return {h.host(), both.host()};
  }
  Results swiglu_dgrad(gpu::Context& gpu) const {
    const DeviceArray<bf16> d(size_t(assignments * 2 * in)), dh(size_t(assignments * in));
    grouped_swiglu_dgrad<bf16>(on(gpu), {.dgate_up = {d.data(), {assignments, 2 * in}},
                                         .dh = {dh.data(), {assignments, in}},
                                         .dy = {a.data(), {assignments, out}},
                                         .gate_up = {gate_up.data(), {assignments, 2 * in}},
                                         .offsets = offsets_view(),
                                         .weight = stack()});
    return {d.host(), {}};
  }

  static int64_t sum(const std::vector<int32_t>& loads) { return offsets_of(loads).back(); }
  static std::vector<int32_t> offsets_of(const std::vector<int32_t>& loads) {
    std::vector<int32_t> offsets{0};
    for (const int32_t n : loads) offsets.push_back(offsets.back() + n);
    return offsets;
  }
  static std::vector<int32_t> rows_of(int64_t assignments) {
    std::vector<int32_t> row;
    for (int64_t i = 0; i < assignments; ++i) row.push_back(int32_t(i * 7 % assignments));
    return row;
  }

  int64_t experts, assignments, out, in;
  bool gathers;
  DeviceArray<bf16> a, gate_up, weight;
  DeviceArray<int32_t> offsets, row;
  DeviceArray<std::byte> workspace;
};

struct Product {
  const char* name;
  Results (Products::*run)(gpu::Context&) const;
};
constexpr Product kProducts[] = {{"forward", &Products::forward},
                                 {"dgrad", &Products::dgrad},
                                 {"forward with SwiGLU", &Products::swiglu_forward},
                                 {"dgrad with SwiGLU", &Products::swiglu_dgrad}};

// Tails of fewer than 16 rows; more stages of k than the ring has; tiles of 256, 192 and 128
// columns, also past the edge.
const std::vector<Shape> kProductShapes = {
    {{0, 256, 1, 140, 0, 513}, 256, 520, Rows::kInOrder},
    {{129, 300, 64}, 384, 192, Rows::kGathered},
    {{3, 0, 0, 385}, 528, 136, Rows::kGathered},
    {{1}, 144, 152, Rows::kInOrder},
    {{257}, 456, 72, Rows::kInOrder},
};

TEST_CASE("the experts' products have the same bits from blocks with many tiles and with few") {
  gpu::Context all = simt::make_context(), some = simt::make_context();
  for (const Shape& s : kProductShapes) {
    const Products problem(s);
    for (const Product& product : kProducts) {
      const Results want = (problem.*product.run)(all);
      some.multiprocessors = 1;
      for (const char* order : {"fwd", "rev", "rnd:1", "rnd:2"}) {
        INFO(product.name << ", out " << s.out << ", " << order);
        simt::set_schedule(simt::parse_schedule(order));
        const Results got = (problem.*product.run)(some);
        simt::set_schedule({});
        REQUIRE(got.same_bits(want));
        some.multiprocessors = 6 - some.multiprocessors;
      }
    }
  }
}

struct Attended {
  std::vector<bf16> out;
  std::vector<float> lse, amax;

  bool same_bits_as(const Attended& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(bf16)) == 0 &&
           same_bits(lse, other.lse) && same_bits(amax, other.amax);
  }
};
Attended attend(gpu::Context& gpu, const AttentionShape& s, float spread) {
  const int64_t tokens = s.batch * s.sequence, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const DeviceArray<bf16> qkv(random_bf16(tokens * width, spread, "qkv")),
      out(random_bf16(tokens * s.heads * s.head_dim, 1, "out"));
  const DeviceArray<float> lse(random_floats(tokens * s.heads, 1, "lse")),
      amax(std::vector<float>{0});
  attention_forward<bf16>({.gpu = &gpu}, {.out = {out.data(), {tokens, s.heads * s.head_dim}},
                                          .lse = {lse.data(), {s.batch, s.heads, s.sequence}},
                                          .amax = {amax.data(), {1}},
                                          .qkv = {qkv.data(), {tokens, width}},
                                          .batch = s.batch,
                                          .sequence = s.sequence,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim});
  return {out.host(), lse.host(), amax.host()};
}

// Blocks with many works and with one, sections of one head and of two, the last of them shorter.
TEST_CASE("attention forward has the same bits from blocks with many works and with one") {
  gpu::Context one = with_multiprocessors(1), eight = with_multiprocessors(8),
               all = simt::make_context();
  for (const AttentionShape& s :
       {AttentionShape{1, 300, 3, 1, 64}, AttentionShape{2, 260, 1, 1, 128}}) {
    INFO("D " << s.head_dim);
    const float spread = s.head_dim == 64 ? 1 : 4;
    const Attended want = attend(all, s, spread);
    REQUIRE(attend(one, s, spread).same_bits_as(want));
    REQUIRE(attend(eight, s, spread).same_bits_as(want));
  }
}

// dqkv, and the largest dq or dk and dv.
Attended attend_backward(gpu::Context& gpu, const AttentionShape& s, const Attended& forward) {
  const int64_t tokens = s.batch * s.sequence, width = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const int64_t inner = s.heads * s.head_dim, half = s.head_dim / 2;
  std::vector<float> cos(static_cast<size_t>(s.sequence * half)), sin = cos;
  rope_table({cos.data(), {s.sequence, half}}, {sin.data(), {s.sequence, half}}, 10000);
  const DeviceArray<bf16> qkv(random_bf16(tokens * width, 1, "qkv")), out(forward.out),
      dout(random_bf16(tokens * inner, 1, "dout")), dqkv(random_bf16(tokens * width, 1, "dqkv"));
  const DeviceArray<float> lse(forward.lse), amax(std::vector<float>{0, 0}), cosines(cos),
      sines(sin);
  const DeviceArray<float> scratch(
      std::vector<float>(static_cast<size_t>(attention_backward_scratch(Backend::kGpu, s))));
  attention_backward<bf16>(
      {.gpu = &gpu}, {.dqkv = {dqkv.data(), {tokens, width}},
                      .dqk_amax = {amax.data(), {1}},
                      .dv_amax = {amax.data() + 1, {1}},
                      .scratch = {scratch.data(), {attention_backward_scratch(Backend::kGpu, s)}},
                      .dout = {dout.data(), {tokens, inner}},
                      .out = {out.data(), {tokens, inner}},
                      .lse = {lse.data(), {s.batch, s.heads, s.sequence}},
                      .qkv = {qkv.data(), {tokens, width}},
                      .cos = {cosines.data(), {s.sequence, half}},
                      .sin = {sines.data(), {s.sequence, half}},
                      .batch = s.batch,
                      .sequence = s.sequence,
                      .heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .head_dim = s.head_dim});
  return {dqkv.host(), {}, amax.host()};
}

TEST_CASE("attention backward has the same bits from blocks with many works and with one") {
  gpu::Context all = simt::make_context();
  const AttentionShape s{1, 300, 3, 1, 64};
  const Attended forward = attend(all, s, 1);
  const Attended want = attend_backward(all, s, forward);
  for (const int multiprocessors : {1, 2, 8}) {
    INFO("multiprocessors " << multiprocessors);
    gpu::Context some = with_multiprocessors(multiprocessors);
    REQUIRE(attend_backward(some, s, forward).same_bits_as(want));
  }
}

// Elements of all sizes around the smallest normal number.
TEST_CASE("the memory adds subnormal numbers as zeros; experts without rows keep theirs") {
  const auto flushed = [](float x) {
    return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
  };
  gpu::Context gpu = simt::make_context();
  const Shape s{{2, 0, 1}, 16, 24, Rows::kInOrder};
  const std::vector<float> begin = random_floats(weights(s), 0x1p-125f, "dweight");
  const std::vector<float> sums = weight_gradient(gpu, s, 0x1p-62f, begin, GradientSum::kStore);
  const std::vector<float> now = weight_gradient(gpu, s, 0x1p-62f, begin);
  int64_t changed = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    const bool no_rows = int64_t(i) / (s.out * s.in) == 1;
    const float want = no_rows ? begin[i] : flushed(flushed(begin[i]) + flushed(sums[i]));
    INFO("element " << i << ": " << now[i] << ", want " << want);
    REQUIRE(std::bit_cast<uint32_t>(now[i]) == std::bit_cast<uint32_t>(want));
    changed += want != begin[i] + sums[i];
  }
  REQUIRE(changed > 100);
}

}  // namespace
}  // namespace assay
