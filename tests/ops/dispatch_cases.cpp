#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/dispatch.h"
#include "tests/ops/cub/by_cub.h"
#include "tests/ops/op_case.h"
#include "tests/ops/routing.h"
#include "tests/ref/dispatch.h"

namespace assay {

namespace {

struct Shape {
  int64_t tokens, experts, k;
  Load load;
};

// Our kernels, or CUB's primitives (tests/ops/cub): the same results.
enum class By { kUs, kCub };
std::string name_by(const char* op, By by) {
  return op + std::string(by == By::kCub ? " by CUB" : "");
}
OpCase gpu_case(OpCase c) {
  c.body = OpBody::kGpu;
  return c;
}

OpInstance instance(const Shape& s, By by) {
  auto bench = std::make_shared<Workbench>();
  const View<int32_t, 2> expert = bench->in<int32_t, 2>("expert", {s.tokens, s.k});
  const Dispatch a{
      .offsets = bench->out<int32_t, 1>("offsets", {s.experts + 1}),
      .token = bench->out<int32_t, 1>("token", {s.tokens * s.k}),
      .slot = bench->out<int32_t, 2>("slot", {s.tokens, s.k}),
      .partial = bench->tmp<int32_t, 2>("partial", {dispatch_pieces(s.tokens), s.experts}),
      .expert = expert};
  const auto chosen = choose_experts(s.tokens, s.experts, s.k, s.load);
  std::copy(chosen.begin(), chosen.end(), expert.data);
  bench->commit();
  const auto check = [a, s, chosen](Report& report) {
    const ref::Dispatch want(chosen, s.experts, s.k);
    const auto doubles = [](const std::vector<int64_t>& v) {
      return std::vector<double>(v.begin(), v.end());
    };
    report.equal("offsets", a.offsets, doubles(want.offsets));
    report.equal("token", a.token, doubles(want.token));
    report.equal("slot", a.slot, doubles(want.slot));
  };
  void (*const call)(Exec, const Dispatch&) = by == By::kCub ? by_cub::dispatch : dispatch;
  OpInstance made{bench, [=](Exec on) { call(on, bench->located(a)); }, check, dispatch_cost(a)};
  if (by == By::kCub) {
    made.workspace = [n = a.token.dim[0]](Backend) { return by_cub::workspace_bytes(n); };
  }
  return made;
}

// The sort of the embedding's backward pass, whose scratch is in the workspace.
OpInstance sort_instance(int64_t n, int64_t limit, By by) {
  auto bench = std::make_shared<Workbench>();
  const View<int32_t, 1> keys = bench->in<int32_t, 1>("keys", {n});
  const gpu::SortPositions a{.key = bench->out<int32_t, 1>("key", {n}),
                             .position = bench->out<int32_t, 1>("position", {n}),
                             .scratch = {},
                             .keys = keys,
                             .limit = limit};
  RandomSequence random({7, stream_id("keys"), 0});
  for (int64_t i = 0; i < n; ++i) keys[i] = int32_t(random.below(uint32_t(limit)));
  bench->commit();
  const auto check = [=](Report& report) {
    std::vector<double> position(static_cast<size_t>(n)), key;
    std::iota(position.begin(), position.end(), 0.0);
    std::stable_sort(position.begin(), position.end(),
                     [&](double i, double j) { return keys[int64_t(i)] < keys[int64_t(j)]; });
    for (const double i : position) key.push_back(double(keys[int64_t(i)]));
    report.equal("key", a.key, key);
    report.equal("position", a.position, position);
  };
  void (*const call)(Exec, const gpu::SortPositions&) =
      by == By::kCub ? by_cub::sort_positions : gpu::sort_positions;
  const Cost cost{.bytes = double(keys.bytes() + a.key.bytes() + a.position.bytes()), .flops = 0};
  const auto run = [=](Exec on) {
    gpu::SortPositions here = bench->located(a);
    here.scratch = on.workspace;
    call(on, here);
  };
  const auto workspace = [=](Backend) {
    return by == By::kCub ? by_cub::workspace_bytes(n) : gpu::sort_positions_scratch_bytes(n);
  };
  return {bench, run, check, cost, workspace};
}

}  // namespace

std::vector<OpCase> dispatch_cases() {
  std::vector<OpCase> cases;
  const auto name_of = [](const Shape& s, By by) {
    return name_by("dispatch", by) + " N=" + std::to_string(s.tokens) +
           " E=" + std::to_string(s.experts) + " K=" + std::to_string(s.k) + " " +
           load_name(s.load);
  };
  for (const Shape& s : {Shape{1, 1, 1, Load::kRandom}, Shape{1, 4, 4, Load::kRandom},
                         Shape{67, 5, 1, Load::kOneHot}, Shape{257, 9, 2, Load::kOddsOnly},
                         Shape{513, 4, 2, Load::kOneHot}, Shape{65, 64, 16, Load::kRandom},
                         Shape{300, 4096, 7, Load::kOneHot}, Shape{2048, 64, 6, Load::kRandom},
                         Shape{8705, 5, 2, Load::kRandom}, Shape{2048, 4, 2, Load::kRandom},
                         Shape{2048, 256, 7, Load::kRandom}, Shape{2048, 4096, 7, Load::kRandom}}) {
    cases.push_back({"dispatch", name_of(s, By::kUs), [s] { return instance(s, By::kUs); }});
    if (s.tokens == 2048 && s.experts > 4) continue;  // CUB: the small ones show all there is
    cases.push_back(
        gpu_case({"dispatch", name_of(s, By::kCub), [s] { return instance(s, By::kCub); }}));
  }
  for (const Shape& s : {Shape{65536, 64, 6, Load::kRandom}, Shape{65536, 256, 7, Load::kRandom},
                         Shape{65536, 4096, 7, Load::kRandom}}) {
    const auto make = [s](By by) { return [s, by] { return instance(s, by); }; };
    cases.push_back(large("dispatch", name_of(s, By::kUs), make(By::kUs)));
    cases.push_back(gpu_case(large("dispatch", name_of(s, By::kCub), make(By::kCub))));
  }
  for (const By by : {By::kUs, By::kCub}) {
    for (const auto& [n, limit] : {std::pair<int64_t, int64_t>{1, 1},
                                   {700, 3},
                                   {5000, 50304},
                                   {2100, 1 << 24},
                                   {65536, 50304}}) {
      const auto name =
          name_by("dispatch_sort", by) + strprintf(" N=%ld limit=%ld", long(n), long(limit));
      const auto make = [=, n = n, limit = limit] { return sort_instance(n, limit, by); };
      cases.push_back(gpu_case(n == 65536 ? large("dispatch_sort", name, make)
                                          : OpCase{"dispatch_sort", name, make}));
    }
  }
  return cases;
}

}  // namespace assay
