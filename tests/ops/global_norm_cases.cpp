#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/global_norm.h"
#include "tests/ops/op_case.h"
#include "tests/ref/global_norm.h"
#include "tests/tolerance.h"

namespace assay {

namespace {

struct Setup {
  std::string name;
  std::vector<int64_t> sizes;
  double max_norm;
  std::vector<float> planted;  // overwrite the last tensor's last elements
};

OpInstance instance(const Setup& s) {
  auto bench = std::make_shared<Workbench>();
  auto grads = std::make_shared<std::vector<View<const float, 1>>>();
  for (size_t i = 0; i < s.sizes.size(); ++i) {
    const View<float, 1> g = bench->in<float, 1>(strprintf("g%zu", i), {s.sizes[i]});
    if (i + 1 == s.sizes.size()) {
      std::copy(s.planted.begin(), s.planted.end(), g.data + g.size() - s.planted.size());
    }
    grads->push_back(g);
  }
  bench->commit();
  const GradientList list{grads->data(), {int64_t(grads->size())}};
  const GlobalNorm a{.norm = bench->out<float, 1>("norm", {1}),
                     .clip = bench->out<float, 1>("clip", {1}),
                     .non_finite = bench->out<int64_t, 1>("non_finite", {1}),
                     .partial = bench->tmp<double, 2>("partial", {global_norm_pieces(list), 2}),
                     .grads = list,
                     .max_norm = s.max_norm};
  const auto check = [a, grads](Report& report) {
    ref::GlobalNorm want;
    for (const auto& g : *grads) want.add(Workbench::doubles(g));
    const auto near = [&](const char* name, View<float, 1> got, double value) {
      if (std::isfinite(value)) {
        report.near(name, got, {value}, [&](int64_t) { return tol::rounding<float>(value); });
      } else {
        const bool same = std::isnan(value) ? std::isnan(got[0]) : double(got[0]) == value;
        report.below(std::string(name) + " is non-finite as expected", same ? 0 : 1, 0.5);
      }
    };
    near("norm", a.norm, want.norm());
    near("clip", a.clip, want.clip(a.max_norm));
    report.equal("non_finite", a.non_finite, {double(want.non_finite)});
  };
  const auto run = [a, grads, bench](Exec on) {
    auto located = *grads;
    for (auto& g : located) g = bench->located(g);
    GlobalNorm where = bench->located(a);
    where.grads.data = located.data();
    global_norm(on, where);
  };
  return {bench, run, check, global_norm_cost(a)};
}

// The gradients shared by ranks, which own neighbouring pieces in turn, as buckets are shared. Each
// fills the rows of its pieces, segment by segment, the last one first. Everything must have the
// bits of global_norm.
struct Shared {
  std::string name;
  std::vector<int64_t> sizes;
  int64_t ranks, run;  // run: neighbouring pieces of one rank
  float planted;       // the last element
};

OpInstance shared_instance(const Shared& s) {
  auto bench = std::make_shared<Workbench>();
  std::vector<View<const float, 1>> whole;
  struct Owned {
    View<const float, 1> segment;
    int64_t first_piece;
  };
  std::vector<std::vector<Owned>> owned(size_t(s.ranks));
  int64_t pieces = 0;
  for (size_t t = 0; t < s.sizes.size(); ++t) {
    const View<float, 1> g = bench->in<float, 1>(strprintf("g%zu", t), {s.sizes[t]});
    if (t + 1 == s.sizes.size()) g[g.size() - 1] = s.planted;
    whole.push_back(g);
    for (int64_t first = 0; first < g.size(); ++pieces) {
      auto& mine = owned[size_t(pieces / s.run % s.ranks)];
      const int64_t count = std::min(kNormPiece, g.size() - first);
      const auto joins = [&](const Owned& o) {
        return o.segment.data + o.segment.size() == g.data + first;
      };
      if (!mine.empty() && joins(mine.front())) {
        mine.front().segment.dim[0] += count;
      } else {
        mine.insert(mine.begin(), Owned{{g.data + first, {count}}, pieces});
      }
      first += count;
    }
  }
  bench->commit();
  const View<double, 2> rows = bench->tmp<double, 2>("rows", {pieces, 2});
  const NormOfSquares of_ranks{.norm = bench->out<float, 1>("norm", {1}),
                               .clip = bench->out<float, 1>("clip", {1}),
                               .non_finite = bench->out<int64_t, 1>("non_finite", {1}),
                               .partial = rows,
                               .max_norm = 1.0f};
  const GlobalNorm of_one{.norm = bench->out<float, 1>("norm of one", {1}),
                          .clip = bench->out<float, 1>("clip of one", {1}),
                          .non_finite = bench->out<int64_t, 1>("non_finite of one", {1}),
                          .partial = bench->tmp<double, 2>("partial", {pieces, 2}),
                          .grads = {whole.data(), {int64_t(whole.size())}},
                          .max_norm = 1.0f};
  const Cost cost = global_norm_cost(of_one);
  const auto located = [bench](std::vector<View<const float, 1>> list) {
    for (auto& g : list) g = bench->located(g);
    return list;
  };
  const auto run = [=](Exec on) {
    for (const auto& mine : owned) {
      for (const Owned& o : mine) {
        const View<const float, 1> segment = bench->located(o.segment);
        const GradientList grads{&segment, {1}};
        const int64_t count = global_norm_pieces(grads);
        square_sums(on,
                    {.partial = bench->located(rows).rows(o.first_piece, count), .grads = grads});
      }
    }
    norm_of_squares(on, bench->located(of_ranks));
    const auto list = located(whole);
    GlobalNorm one = bench->located(of_one);
    one.grads.data = list.data();
    global_norm(on, one);
  };
  const auto check = [=](Report& report) {
    const auto equal = [&](const char* what, const auto& a, const auto& b) {
      report.below(what, std::memcmp(a.data, b.data, a.bytes()) == 0 ? 0 : 1, 0.5);
    };
    equal("norm has other bits", of_ranks.norm, of_one.norm);
    equal("clip has other bits", of_ranks.clip, of_one.clip);
    equal("non_finite differs", of_ranks.non_finite, of_one.non_finite);
    equal("rows have other bits", rows, of_one.partial);
    ref::GlobalNorm want;
    for (const auto& g : whole) want.add(Workbench::doubles(g));
    report.equal("non_finite", of_ranks.non_finite, {double(want.non_finite)});
    if (want.non_finite > 0) return;
    report.near("norm", of_ranks.norm, {want.norm()},
                [&](int64_t) { return tol::rounding<float>(want.norm()); });
  };
  const Cost twice{.bytes = 2 * cost.bytes, .flops = 2 * cost.flops};
  return {bench, run, check, twice, {}, OpInstance::Alone{}};
}

}  // namespace

std::vector<OpCase> global_norm_cases() {
  std::vector<OpCase> cases;
  const std::vector<int64_t> hundred(100, 999), tiny(1100, 5);
  const std::vector<Setup> setups{{"one element", {1}, 0.0f, {}},
                                  {"nothing", {0}, 1.0f, {}},
                                  {"under the limit", {100}, 1000.0f, {}},
                                  {"clipped", {7, 16384, 16385, 1, 100001}, 1.0f, {}},
                                  {"not clipped by 0", {513, 0, 3}, 0.0f, {}},
                                  {"zeros", {3}, 1.0f, {0, 0, 0}},
                                  {"large values", {20}, 1.0f, {2e38f, -2e38f, 1e30f}},
                                  {"NaN", {20, 40000}, 1.0f, {NAN, 1, NAN}},
                                  {"infinite", {20, 40000}, 1.0f, {-INFINITY, INFINITY, 1}},
                                  {"many tensors", hundred, 1.0f, {}},
                                  {"1100 tensors", tiny, 1.0f, {NAN}},
                                  {"a model of 9.3 M", {9300000}, 1.0f, {}}};
  const Setup model{"a model of 32 M", {24000000, 8000000, 768, 1000001}, 1.0f, {}};
  cases.push_back(
      large("global_norm", "global_norm " + model.name, [model] { return instance(model); }));
  for (const Setup& s : setups) {
    cases.push_back({"global_norm", "global_norm " + s.name, [s] { return instance(s); }});
  }
  const std::vector<int64_t> tensors{7, 3 * kNormPiece, 16385, 1, 10 * kNormPiece + 5, 513};
  for (const Shared& s :
       std::vector<Shared>{{"1 rank", tensors, 1, 4, 1.0f},
                           {"2 ranks", tensors, 2, 3, 1.0f},
                           {"3 ranks with an infinity", tensors, 3, 1, INFINITY},
                           {"4 ranks", {40 * kNormPiece}, 4, 2, 1.0f},
                           {"8 ranks, some with nothing", {20, 70}, 8, 1, 1.0f}}) {
    cases.push_back({"global_norm_of_ranks", "global_norm shared by " + s.name,
                     [s] { return shared_instance(s); }});
  }
  return cases;
}

}  // namespace assay
