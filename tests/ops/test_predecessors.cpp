// Ways of the GPU and their predecessors (cuda/predecessors.h) give the same bits, on the SIMT
// emulator.
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "cuda/simt/context.h"
#include "ops/attention.h"
#include "ops/grouped_linear.h"
#include "ops/rmsnorm.h"
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
                                   const std::vector<float>& begin) {
  std::vector<int32_t> offsets{0}, row;
  for (const int32_t n : s.loads) offsets.push_back(offsets.back() + n);
  const int64_t assignments = offsets.back(), experts = int64_t(s.loads.size());
  for (int64_t a = 0; a < assignments; ++a) row.push_back(int32_t(a * 7 % assignments));
  const DeviceArray<float> dweight(begin);
  const DeviceArray<bf16> dy(random_bf16(assignments * s.out, spread, "dy")),
      x(random_bf16(assignments * s.in, spread, "x"));
  const DeviceArray<int32_t> at(offsets), gather(row);
  const int64_t bytes = grouped_workspace_bytes<bf16>(assignments, experts, s.out, s.in);
  const DeviceArray<std::byte> workspace(size_t(bytes), 256);
  GroupedWgrad<bf16> a{.dweight = {dweight.data(), {experts, s.out, s.in}},
                       .dy = {dy.data(), {assignments, s.out}},
                       .x = {x.data(), {assignments, s.in}},
                       .offsets = {at.data(), {experts + 1}}};
  if (s.rows == Rows::kGathered) a.row = {gather.data(), {assignments}};
  grouped_linear_wgrad<bf16>({.workspace = {workspace.data(), {bytes}}, .gpu = &gpu}, a);
  return dweight.host();
}

// On a GPU of this kind, by the new way and by its predecessor.
struct Ways {
  gpu::Context now = simt::make_context(), before = simt::make_context();
  explicit Ways(gpu::Predecessor which) { before.predecessors.add(which); }
};

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

TEST_CASE(
    "experts' weight gradients that the memory adds have the bits of those that threads add") {
  Ways ways(gpu::Predecessor::kWgradAdd);
  for (const Shape& s : kShapes) {
    INFO("out " << s.out);
    const std::vector<float> begin = random_floats(weights(s), 1, "dweight");
    const std::vector<float> now = weight_gradient(ways.now, s, 1, begin);
    REQUIRE(same_bits(now, weight_gradient(ways.before, s, 1, begin)));
    REQUIRE(!same_bits(now, begin));
  }
}

TEST_CASE("tiles whose place in the list was fetched early have the bits of the others") {
  Ways ways(gpu::Predecessor::kTileFetch);
  for (const int multiprocessors : {1, 7}) {  // blocks with many tiles, and with none
    ways.now.multiprocessors = ways.before.multiprocessors = multiprocessors;
    for (const Shape& s : kShapes) {
      INFO("multiprocessors " << multiprocessors << ", out " << s.out);
      const std::vector<float> begin = random_floats(weights(s), 1, "dweight");
      REQUIRE(same_bits(weight_gradient(ways.now, s, 1, begin),
                        weight_gradient(ways.before, s, 1, begin)));
    }
  }
}

// dresid, dbranch and dweight after RMSNorm's backward, in one list.
template <typename T>
std::vector<float> norm_gradients(gpu::Context& gpu, int64_t rows, int64_t width) {
  const auto random = [&](const char* name) {
    std::vector<T> x;
    for (const float v : random_floats(rows * width, 1, name)) x.push_back(T(v));
    return x;
  };
  const int64_t blocks = rmsnorm_backward_blocks(rows);
  const DeviceArray<T> dresid(random("dresid")), dy(random("dy")), resid(random("resid"));
  const DeviceArray<T> dbranch(std::vector<T>(size_t(rows * width)));
  const DeviceArray<float> dweight(random_floats(width, 1, "dweight")),
      weight(random_floats(width, 1, "weight")), rstd(random_floats(rows, 1, "rstd")),
      partial(std::vector<float>(size_t(blocks * width)));
  rmsnorm_backward<T>({.gpu = &gpu}, {.dresid = {dresid.data(), {rows, width}},
                                      .dbranch = {dbranch.data(), {rows, width}},
                                      .dweight = {dweight.data(), {width}},
                                      .partial = {partial.data(), {blocks, width}},
                                      .dy = {dy.data(), {rows, width}},
                                      .resid = {resid.data(), {rows, width}},
                                      .weight = {weight.data(), {width}},
                                      .rstd = {rstd.data(), {rows}},
                                      .gain = 0.3f});
  std::vector<float> all = dweight.host();
  for (const DeviceArray<T>* part : {&dresid, &dbranch}) {
    for (const T v : part->host()) all.push_back(float(v));
  }
  return all;
}

TEST_CASE("RMSNorm's backward has the same bits whenever it reads dresid") {
  Ways ways(gpu::Predecessor::kNormReads);
  for (const int64_t width : {8, 256, 504, 768, 1024, 1032, 100}) {
    INFO("width " << width);
    REQUIRE(same_bits(norm_gradients<float>(ways.now, 67, width),
                      norm_gradients<float>(ways.before, 67, width)));
    REQUIRE(same_bits(norm_gradients<bf16>(ways.now, 67, width),
                      norm_gradients<bf16>(ways.before, 67, width)));
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
TEST_CASE("attention forward from a list of works has the bits of a block for each work") {
  Ways ways(gpu::Predecessor::kAttentionForwardBlocks),
      order(gpu::Predecessor::kAttentionForwardOrder);
  for (const AttentionShape& s :
       {AttentionShape{1, 300, 3, 1, 64}, AttentionShape{2, 260, 1, 1, 128}}) {
    const float spread = s.head_dim == 64 ? 1 : 4;
    const Attended want = attend(ways.before, s, spread);
    for (const int multiprocessors : {1, 8}) {
      INFO("D " << s.head_dim << ", multiprocessors " << multiprocessors);
      ways.now.multiprocessors = order.before.multiprocessors = multiprocessors;
      REQUIRE(attend(ways.now, s, spread).same_bits_as(want));
      REQUIRE(attend(order.before, s, spread).same_bits_as(want));
    }
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
      std::vector<float>(static_cast<size_t>(attention_backward_scratch(s))));
  attention_backward<bf16>({.gpu = &gpu},
                           {.dqkv = {dqkv.data(), {tokens, width}},
                            .dqk_amax = {amax.data(), {1}},
                            .dv_amax = {amax.data() + 1, {1}},
                            .scratch = {scratch.data(), {attention_backward_scratch(s)}},
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

TEST_CASE("attention backward from lists of works has the bits of a block for each work") {
  Ways ways(gpu::Predecessor::kAttentionBackwardBlocks);
  const AttentionShape s{1, 300, 3, 1, 64};
  const Attended forward = attend(ways.now, s, 1);
  const Attended want = attend_backward(ways.before, s, forward);
  for (const int multiprocessors : {1, 2, 8}) {
    INFO("multiprocessors " << multiprocessors);
    ways.now.multiprocessors = multiprocessors;
    REQUIRE(attend_backward(ways.now, s, forward).same_bits_as(want));
  }
}

// Elements of all sizes around the smallest normal number.
TEST_CASE("the memory adds subnormal numbers as zeros; experts without rows keep theirs") {
  const auto flushed = [](float x) {
    return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
  };
  Ways ways(gpu::Predecessor::kWgradAdd);
  const Shape s{{2, 0, 1}, 16, 24, Rows::kInOrder};
  const std::vector<float> begin = random_floats(weights(s), 0x1p-125f, "dweight");
  const std::vector<float> zeros(begin.size(), 0.0f);
  const std::vector<float> sums = weight_gradient(ways.before, s, 0x1p-62f, zeros);
  const std::vector<float> now = weight_gradient(ways.now, s, 0x1p-62f, begin);
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
