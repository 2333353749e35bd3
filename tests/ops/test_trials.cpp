// Ways of the GPU that are only taken when asked for (Trial in cuda/predecessors.h) give the bits
// of those that are taken, on the SIMT emulator. op_check_simt runs every case in both ways, too.
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/random.h"
#include "cuda/simt/context.h"
#include "ops/grouped_swiglu.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using test::DeviceArray;

std::vector<bf16> random_bf16(int64_t count, const char* name) {
  RandomSequence random({3, stream_id(name)});
  std::vector<bf16> x(static_cast<size_t>(count));
  for (bf16& v : x) v = bf16(float(2 * random.uniform() - 1));
  return x;
}

enum class Rows { kInOrder, kGathered };
struct Shape {
  std::vector<int32_t> loads;
  int64_t out, in;
  Rows rows;
};

// Results of one product: y, or what SwiGLU makes of it.
struct Results {
  std::vector<bf16> first, second;
  int same_bits(const Results& other) const {
    return first.size() == other.first.size() && second.size() == other.second.size() &&
           std::memcmp(first.data(), other.first.data(), first.size() * 2) == 0 &&
           std::memcmp(second.data(), other.second.data(), second.size() * 2) == 0;
  }
};

struct Problem {
  explicit Problem(const Shape& s)
      : experts(int64_t(s.loads.size())),
        assignments(sum(s.loads)),
        out(s.out),
        in(s.in),
        gathers(s.rows == Rows::kGathered),
        a(random_bf16(assignments * std::max(out, in), "a")),
        gate_up(random_bf16(assignments * 2 * in, "gate_up")),
        weight(random_bf16(experts * out * in, "weight")),
        offsets(offsets_of(s.loads)),
        row(rows_of(assignments)),
        workspace(size_t(grouped_workspace_bytes<bf16>(assignments, experts, out, in)), 256) {}

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
  Results (Problem::*run)(gpu::Context&) const;
};
constexpr Product kProducts[] = {{"forward", &Problem::forward},
                                 {"dgrad", &Problem::dgrad},
                                 {"forward with SwiGLU", &Problem::swiglu_forward},
                                 {"dgrad with SwiGLU", &Problem::swiglu_dgrad}};

// Pairs of parts of one expert, of two, and at an odd end; more stages of k than the ring has;
// tiles of 256, 192 and 128 columns, also past the edge.
const std::vector<Shape> kShapes = {
    {{0, 256, 1, 140, 0, 513}, 256, 520, Rows::kInOrder},
    {{129, 300, 64}, 384, 192, Rows::kGathered},
    {{3, 0, 0, 385}, 528, 136, Rows::kGathered},
    {{1}, 144, 152, Rows::kInOrder},
    {{257}, 456, 72, Rows::kInOrder},
};

void require_same_bits(std::initializer_list<gpu::Trial> trials) {
  gpu::Context proven = simt::make_context(), trying = simt::make_context();
  for (const gpu::Trial trial : trials) trying.trials.add(trial);
  for (const Shape& s : kShapes) {
    const Problem problem(s);
    for (const Product& product : kProducts) {
      const Results want = (problem.*product.run)(proven);
      trying.multiprocessors = 1;  // blocks with many tiles, or with few
      for (const char* order : {"fwd", "rev", "rnd:1", "rnd:2"}) {
        INFO(product.name << ", out " << s.out << ", " << order);
        simt::set_schedule(simt::parse_schedule(order));
        const Results got = (problem.*product.run)(trying);
        simt::set_schedule({});
        REQUIRE(got.same_bits(want));
        trying.multiprocessors = 6 - trying.multiprocessors;
      }
    }
  }
}

TEST_CASE("the experts' products by clusters with multicast have the bits of single blocks") {
  require_same_bits({gpu::Trial::kMulticast});
}

TEST_CASE("the experts' products stored by TMA have the bits of those stored by threads") {
  require_same_bits({gpu::Trial::kTmaStore});
  require_same_bits({gpu::Trial::kTmaStore, gpu::Trial::kMulticast});
}

TEST_CASE("clusters are launched when they are asked for, and not otherwise") {
  gpu::Context without = simt::make_context();
  without.kind.clusters = false;  // so that the launch of a cluster is an error
  const Problem problem(kShapes[1]);
  for (const Product& product : kProducts) {
    INFO(product.name);
    without.trials = {};
    REQUIRE_NOTHROW((problem.*product.run)(without));
    without.trials.add(gpu::Trial::kMulticast);
    REQUIRE_THROWS_WITH((problem.*product.run)(without),
                        Catch::Matchers::ContainsSubstring("clusters need"));
  }
}

TEST_CASE("products are stored by TMA when it is asked for, and not otherwise") {
  gpu::Context little = simt::make_context();
  little.kind.shared_bytes = 220'000;  // too little for the second buffers
  const Problem problem(kShapes[0]);
  for (const Product& product : {kProducts[0], kProducts[2]}) {
    INFO(product.name);
    little.trials = {};
    REQUIRE_NOTHROW((problem.*product.run)(little));
    little.trials.add(gpu::Trial::kTmaStore);
    if (product.run == &Problem::swiglu_forward) {
      REQUIRE_NOTHROW((problem.*product.run)(little));
    } else {
      REQUIRE_THROWS_WITH((problem.*product.run)(little),
                          Catch::Matchers::ContainsSubstring("dynamic shared memory"));
    }
  }
}

}  // namespace
}  // namespace assay
