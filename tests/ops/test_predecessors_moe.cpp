// Ways of the GPU and their predecessors (cuda/predecessors.h) around the experts: work lists,
// the router.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "cuda/simt/context.h"
#include "ops/grouped/gpu_work_list.h"
#include "ops/router.h"
#include "tests/catch.h"
#include "tests/simt/run.h"
#include "tests/tolerance.h"

namespace assay {
namespace {

using test::DeviceArray;

// On a GPU of this kind, by the new way and by its predecessor.
struct Ways {
  gpu::Context now = simt::make_context(), before = simt::make_context();
  explicit Ways(gpu::Predecessor which) { before.predecessors.add(which); }
};

enum class List { kCut64, kCut128, kWhole, kPieces };

// The parts of a list, `count` of them, as integers.
std::vector<int32_t> list_of(gpu::Context& gpu, const std::vector<int32_t>& offsets, List list) {
  const int64_t experts = int64_t(offsets.size()) - 1, assignments = offsets.back();
  const DeviceArray<int32_t> at(offsets);
  const int64_t bytes = gpu::grouped_parts_bytes(assignments, experts, 0, 0);
  const DeviceArray<std::byte> workspace(size_t(bytes), 256);
  const Exec on{.workspace = {workspace.data(), {bytes}}, .gpu = &gpu};
  const gpu::GroupedParts parts = gpu::grouped_parts(on, "test", assignments, experts);
  const View<const int32_t, 1> view{at.data(), {experts + 1}};
  if (list == List::kCut64 || list == List::kCut128) {
    gpu::cut_rows(on, parts, view, assignments, list == List::kCut64 ? 64 : 128);
  } else {
    gpu::order_experts(on, parts, view,
                       list == List::kPieces ? gpu::GroupedCut::kPieces : gpu::GroupedCut::kWhole);
  }
  int32_t count;
  simt::device_copy(&count, parts.count, sizeof count);
  std::vector<int32_t> out(size_t(count) * 4);
  simt::device_copy(out.data(), parts.parts, out.size() * 4);
  return out;
}

std::vector<int32_t> offsets_of(const std::vector<int32_t>& loads) {
  std::vector<int32_t> offsets{0};
  for (const int32_t n : loads) offsets.push_back(offsets.back() + n);
  return offsets;
}

// Every 7th expert has no rows; many have as many as others.
std::vector<int32_t> uneven_loads(int experts) {
  std::vector<int32_t> loads;
  for (int e = 0; e < experts; ++e) loads.push_back(e % 7 == 3 ? 0 : e * 37 % 300);
  return loads;
}

TEST_CASE("the experts' work lists are those of their predecessors") {
  Ways ways(gpu::Predecessor::kWorkLists);
  std::vector<int32_t> one_of_many(1100, 0), cut(70, 5);
  one_of_many[1050] = 20000;
  cut[0] = cut[40] = cut[69] = 40000;
  for (const std::vector<int32_t>& loads : {std::vector<int32_t>{0},
                                            {1},
                                            {64},
                                            {3, 0, 129, 128},
                                            std::vector<int32_t>(65, 0),
                                            uneven_loads(64),
                                            uneven_loads(129),
                                            uneven_loads(1100),
                                            one_of_many,
                                            cut}) {
    const std::vector<int32_t> offsets = offsets_of(loads);
    for (const List list : {List::kCut64, List::kCut128, List::kWhole, List::kPieces}) {
      INFO(loads.size() << " experts, list " << int(list));
      const std::vector<int32_t> now = list_of(ways.now, offsets, list);
      REQUIRE(now == list_of(ways.before, offsets, list));
      int64_t rows = 0;
      for (size_t i = 0; i < now.size(); i += 4) rows += now[i + 2];
      REQUIRE(rows == offsets.back());
    }
  }
}

// Results of router_forward.
struct Routed {
  std::vector<int32_t> expert;
  std::vector<float> gate, logsumexp, aux_slope;
  std::vector<double> measures;
  std::vector<int64_t> counts;
};

Routed route(gpu::Context& gpu, int64_t n, int64_t experts, int64_t k, const RouterSettings& s,
             bool biased, float spread) {
  RandomSequence random({5, stream_id("logits")});
  std::vector<float> z(size_t(n * experts)), b;
  // Many equal logits.
  for (float& v : z) v = std::round(16 * (2 * random.uniform() - 1)) / 16 * spread;
  for (int64_t e = 0; biased && e < experts; ++e) b.push_back(float(e % 3) / 64);
  const int64_t pieces = router_pieces(n, s), groups = router_groups(n, s);
  const DeviceArray<float> logits(z), bias(b), gate(size_t(n * k)), lse(size_t(n), 16),
      slope(size_t(groups * experts)), shares(size_t(pieces * experts));
  const DeviceArray<int32_t> expert(size_t(n * k)), partial(size_t(pieces * experts));
  const DeviceArray<double> measures(std::vector<double>(kRouterMeasures, 0.0)),
      measure_partial(size_t(pieces * kRouterMeasures));
  const DeviceArray<int64_t> counts(std::vector<int64_t>(size_t(experts), 2));
  RouterForward a{.expert = {expert.data(), {n, k}},
                  .gate = {gate.data(), {n, k}},
                  .logsumexp = {lse.data(), {n}},
                  .measures = {measures.data(), {kRouterMeasures}},
                  .counts = {counts.data(), {experts}},
                  .count_partial = {partial.data(), {pieces, experts}},
                  .measure_partial = {measure_partial.data(), {pieces, kRouterMeasures}},
                  .logits = {logits.data(), {n, experts}},
                  .settings = s};
  if (biased) a.bias = {bias.data(), {experts}};
  if (s.aux != RouterAux::kNone) {
    a.aux_slope = {slope.data(), {groups, experts}};
    a.share_partial = {shares.data(), {pieces, experts}};
  }
  router_forward({.gpu = &gpu}, a);
  return {expert.host(),   gate.host(),
          lse.host(),      s.aux == RouterAux::kNone ? std::vector<float>{} : slope.host(),
          measures.host(), counts.host()};
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// The order of the sum over all experts differs, and nothing else that training reads.
TEST_CASE("a router with its keys in registers chooses and weighs as one with shared memory") {
  Ways ways(gpu::Predecessor::kRouterShared);
  for (const auto& [n, experts, k] : {std::array<int64_t, 3>{1, 1, 1},
                                      {67, 5, 2},
                                      {130, 64, 6},
                                      {65, 100, 9},
                                      {190, 256, 7},
                                      {20, 256, 32}}) {
    for (const bool biased : {false, true}) {
      for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
        for (const float spread : {2.0f, 100.0f}) {
          if (score == RouterScore::kSoftmax && biased) continue;  // keys have the sum in them
          INFO("N " << n << " E " << experts << " biased " << biased << " score " << int(score));
          const RouterSettings s{.score = score, .route_scale = 1.25f, .aux = RouterAux::kGates};
          const Routed now = route(ways.now, n, experts, k, s, biased, spread),
                       before = route(ways.before, n, experts, k, s, biased, spread);
          REQUIRE(now.expert == before.expert);
          REQUIRE(now.counts == before.counts);
          REQUIRE(same_bits(now.gate, before.gate));
          REQUIRE(same_bits(now.aux_slope, before.aux_slope));
          for (size_t t = 0; t < now.logsumexp.size(); ++t) {
            const double want = before.logsumexp[t];
            REQUIRE(std::abs(now.logsumexp[t] - want) <=
                    tol::sum(double(experts), 1) + tol::rounding<float>(want));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay
