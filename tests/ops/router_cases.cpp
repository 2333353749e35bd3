#include <cmath>
#include <limits>
#include <set>

#include "ops/router.h"
#include "tests/ops/matrix_case.h"
#include "tests/ops/router_case.h"

namespace assay {

std::vector<OpCase> router_backward_cases();  // router_backward_cases.cpp

namespace {

std::vector<double> row_keys(const RouterForward& a, int64_t t) {
  const int64_t experts = a.logits.dim[1];
  std::vector<double> z(a.logits.row(t), a.logits.row(t) + experts);
  auto key = ref::scores(a.settings, z);
  for (size_t e = 0; e < key.size() && !a.bias.empty(); ++e) key[e] += double(a.bias[int64_t(e)]);
  return key;
}

// Without a bias the order must be the reference's. With a bias, keys closer than their rounding
// may swap: the key at each place must equal the reference's within the tolerance.
void check_selection(Report& report, const RouterForward& a, const std::vector<int64_t>& rows) {
  const int64_t k = a.expert.dim[1], experts = a.logits.dim[1];
  int64_t wrong = 0;
  double disorder = 0;
  for (const int64_t t : rows) {
    const auto key = row_keys(a, t);
    const auto want = ref::select_experts(key, k);
    const std::set<int64_t> ids(a.expert.row(t), a.expert.row(t) + k);
    if (int64_t(ids.size()) != k || *ids.begin() < 0 || *ids.rbegin() >= experts) {
      ++wrong;
      continue;
    }
    for (int64_t i = 0; i < k; ++i) {
      const int64_t got = a.expert.at(t, i);
      if (a.bias.empty() && got != want[size_t(i)]) ++wrong;
      disorder = std::max(disorder, std::abs(key[size_t(got)] - key[size_t(want[size_t(i)])]));
    }
  }
  report.below("rows in the wrong order", double(wrong), 0.5);
  report.below("distance of keys in the wrong order", disorder,
               tol::elementary(score_roundings(a), a.bias.empty() ? 1 : 2));
}

// Large cases check some rows; only small cases check results that need all rows.
void check_forward(Report& report, const RouterForward& a, const std::vector<double>& counts0) {
  const auto rows = wide_sample(a.logits.dim[0], double(a.logits.dim[1]));
  const bool whole = int64_t(rows.size()) == a.logits.dim[0];
  check_selection(report, a, rows);
  auto p = router_problem(a, counts0);
  std::vector<double> counts = counts0;
  for (const int64_t e : p.expert) counts[size_t(e)] += 1;
  report.equal("counts", a.counts, counts);
  if (!whole) {
    auto ids = chosen_rows(a.expert.data, p.k, rows);
    p.tokens = int64_t(rows.size());
    p.expert.assign(ids.values.begin(), ids.values.end());
  }
  ref::Router<double> want;
  want.forward(p, chosen_doubles(a.logits, rows));
  const double roundings = score_roundings(a), experts = double(p.experts);
  auto gate = chosen_rows(a.gate.data, p.k, rows);
  report.near("gate", gate.view(), want.gate, [&](int64_t i) {
    return tol::elementary(roundings, 2 * want.gate[size_t(i)]) +
           tol::sum(double(p.k), want.gate[size_t(i)]) +
           tol::underflow(1e12 * a.settings.gate_scale);
  });
  if (!a.logsumexp.empty()) {
    auto logsumexp = chosen_rows(a.logsumexp.data, 1, rows);
    report.near("logsumexp", logsumexp.view(), want.logsumexp, [&](int64_t t) {
      return tol::elementary(roundings, 1) + tol::sum(experts, 1) +
             tol::rounding<float>(want.logsumexp[size_t(t)]);
    });
  }
  if (!a.score_sum.empty()) {
    auto score_sum = chosen_rows(a.score_sum.data, 1, rows);
    report.near("score_sum", score_sum.view(), want.score_sum, [&](int64_t t) {
      const double sum = want.score_sum[size_t(t)];
      return tol::elementary(roundings, sum) + tol::sum(experts, sum);
    });
  }
  if (!whole) return;
  if (!a.aux_slope.empty()) {
    // Magnitude of the terms whose difference is the slope.
    const double size = want.aux / double(p.tokens);
    const auto slope = want.aux_slope(p);
    report.near("aux_slope", a.aux_slope, slope, [&](int64_t i) {
      return tol::rounding<float>(slope[size_t(i)]) + tol::elementary(roundings, size) +
             tol::sum(64, size);
    });
  }

  double entropy = 0, z = 0, entropy_size = 0;
  for (const double g : want.ghat) {
    if (g > 0) entropy -= g * std::log(g) / double(p.tokens);
    entropy_size += g / double(p.tokens);
  }
  if (!a.logsumexp.empty()) z = want.z;
  const std::vector<double> measures{kMeasuresStart + want.aux, kMeasuresStart + z,
                                     kMeasuresStart + entropy};
  const std::vector<double> sizes{want.aux, z + std::sqrt(z), entropy + entropy_size};
  report.near("measures", a.measures, measures, [&](int64_t m) {
    return tol::elementary(roundings, 2 * sizes[size_t(m)]) + tol::sum(experts, sizes[size_t(m)]);
  });
}

OpInstance forward_instance(const RouterShape& s) {
  auto bench = std::make_shared<Workbench>();
  const RouterForward a = router_buffers(*bench, s);
  const auto counts0 = Workbench::doubles(a.counts);
  const auto check = [=](Report& report) { check_forward(report, a, counts0); };
  return {bench, [a, bench](Exec on) { router_forward(on, bench->located(a)); }, check,
          router_forward_cost(a)};
}

// Rows whose order is specified: ties, NaN, infinities, and equal rows in every position of a
// vector.
OpInstance order_instance(Bias bias, int64_t experts) {
  struct Row {
    std::vector<float> logits;
    std::vector<double> expert;
  };
  const float nan = NAN, inf = INFINITY;
  std::vector<Row> rows{
      {{1, 1, 1, 1, 1}, {0, 1, 2}},           {{0, 2, 1, 2, 2}, {1, 3, 4}},
      {{3, 1, 2, 1, 1}, {0, 2, 1}},           {{0.f, -0.f, 0.f, -0.f, 0}, {0, 1, 2}},
      {{nan, 1, nan, 2, 3}, {4, 3, 1}},       {{nan, nan, nan, nan, 3}, {4, 0, 1}},
      {{nan, nan, nan, nan, nan}, {0, 1, 2}}, {{nan, -inf, nan, inf, 3}, {3, 4, 1}},
      {{-inf, -inf, -inf, 1, 1}, {3, 4, 0}}};
  // Further experts have lower logits, except for ties with the rows above.
  auto bench = std::make_shared<Workbench>();
  const int64_t n = int64_t(rows.size()), k = 3;
  const View<float, 2> logits = bench->in<float, 2>("logits", {n, experts});
  std::vector<double> want;
  for (int64_t t = 0; t < n; ++t) {
    const Row& row = rows[size_t(t)];
    for (int64_t e = 0; e < experts; ++e) {
      logits.at(t, e) = e < 5 ? row.logits[size_t(e)] : (t < 3 ? row.logits[4] : nan);
    }
    want.insert(want.end(), row.expert.begin(), row.expert.end());
  }
  RouterForward a{.expert = bench->out<int32_t, 2>("expert", {n, k}),
                  .gate = bench->out<float, 2>("gate", {n, k}),
                  .count_partial = bench->tmp<int32_t, 2>("count_partial", {1, experts}),
                  .logits = logits,
                  .settings = {}};
  if (bias == Bias::kRandom) a.bias = bench->in<float, 1>("bias", {experts}, normal(0, 0.25));
  bench->commit();
  const auto check = [=](Report& report) { report.equal("expert", a.expert, want); };
  return {bench, [a, bench](Exec on) { router_forward(on, bench->located(a)); }, check, {}};
}

// Logits of few distinct values, some NaN: K experts tie with many others, in every position of a
// row.
OpInstance ties_instance(int64_t tokens, int64_t experts, int64_t k) {
  auto bench = std::make_shared<Workbench>();
  const View<float, 2> logits = bench->in<float, 2>("logits", {tokens, experts});
  std::vector<double> want;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < experts; ++e) {
      float& z = logits.at(t, e);
      z = std::abs(z) > 2.5f ? NAN : std::round(z);
    }
    const auto ids = ref::select_experts({logits.row(t), logits.row(t) + experts}, k);
    want.insert(want.end(), ids.begin(), ids.end());
  }
  const int64_t pieces = router_pieces(tokens, {});
  const RouterForward a{.expert = bench->out<int32_t, 2>("expert", {tokens, k}),
                        .gate = bench->out<float, 2>("gate", {tokens, k}),
                        .count_partial = bench->tmp<int32_t, 2>("count_partial", {pieces, experts}),
                        .logits = logits,
                        .settings = {}};
  bench->commit();
  const auto check = [=](Report& report) { report.equal("expert", a.expert, want); };
  return {bench, [a, bench](Exec on) { router_forward(on, bench->located(a)); }, check,
          router_forward_cost(a)};
}

// Values known without a reference: 1 for uniform scores. With all tokens on the same K experts the
// value is E / K for gates; for switch only if the scores' mass is there too.
enum class Tokens { kUniform, kTied, kOneSided };

OpInstance self_check_instance(RouterScore score, RouterAux aux, Tokens tokens) {
  const int64_t n = 24, experts = 12, k = 3;
  auto bench = std::make_shared<Workbench>();
  const RouterForward a = router_buffers(
      *bench, {n, experts, k, {.score = score, .aux = aux}, Bias::kNone, ZLoss::kOff});
  float* logits = const_cast<float*>(a.logits.data);
  for (int64_t i = 0; i < n * experts; ++i) {
    const int64_t t = i / experts, e = i % experts;
    const bool mine = tokens == Tokens::kUniform ? e / k == t % (experts / k) : e < k;
    logits[i] = tokens == Tokens::kTied ? 0.5f : mine ? 80.0f : -40.0f;
  }
  bench->commit();
  const bool spread =
      tokens == Tokens::kUniform || (tokens == Tokens::kTied && aux == RouterAux::kSwitch);
  const double want = spread ? 1.0 : double(experts) / double(k);
  const auto check = [=](Report& report) {
    const View<double, 1> value{a.measures.data + kAuxValue, {1}};
    report.near("aux", value, {kMeasuresStart + want},
                [&](int64_t) { return tol::elementary(score_roundings(a), want); });
  };
  return {bench, [a, bench](Exec on) { router_forward(on, bench->located(a)); }, check, {}};
}

// lead: of 300 rows; 0: none is given.
OpInstance bias_instance(const std::vector<int64_t>& counts, double start, BiasRule rule,
                         double lead) {
  const int64_t experts = int64_t(counts.size());
  auto bench = std::make_shared<Workbench>();
  const View<int64_t, 1> in = bench->in<int64_t, 1>("counts", {experts});
  const View<int64_t, 1> sum =
      lead > 0 ? bench->in<int64_t, 1>("lead", {kLeadSums}) : View<int64_t, 1>{};
  const RouterBiasUpdate a{.bias = bench->acc<float, 1>("bias", {experts}, normal(0, start)),
                           .counts = in,
                           .lead = sum,
                           .rate = 0.125f,
                           .rule = rule};
  std::copy(counts.begin(), counts.end(), in.data);
  if (lead > 0) {
    sum[kLeadUnits] = int64_t(std::ldexp(300 * lead, 32));
    sum[kLeadRows] = 300;
  }
  bench->commit();
  const auto check = [=](Report& report) {
    double total = 0, mean = 0;
    for (const int64_t n : counts) total += double(n);
    std::vector<double> over;
    for (const int64_t n : counts) {
      const double excess = double(n) - total / double(experts);
      if (rule == BiasRule::kProportional) {
        over.push_back(total > 0 ? excess / (total / double(experts)) : 0);
      } else {
        over.push_back(excess > 1e-9 * total ? 1 : excess < -1e-9 * total ? -1 : 0);
        mean += over.back() / double(experts);
      }
    }
    const double rate = 0.125 * (lead > 0 ? lead : 1);
    std::vector<double> want;
    for (const double x : over) want.push_back(std::clamp(start - rate * (x - mean), -16.0, 16.0));
    report.near("bias", a.bias, want,
                [&](int64_t e) { return tol::rounding<float>(want[size_t(e)]); });
  };
  return {bench, [a, bench](Exec on) { router_bias_update(on, bench->located(a)); }, check,
          router_bias_update_cost(a)};
}

// Rows beyond what a lead can be are bounded; the sum is exact.
OpInstance lead_sum_instance(int64_t rows, double mean) {
  auto bench = std::make_shared<Workbench>();
  const View<float, 1> lead = bench->in<float, 1>("lead", {rows}, normal(0.25, mean));
  if (rows > 5) {
    lead[1] = -0.5f;
    lead[3] = 1e30f;
    lead[5] = std::numeric_limits<float>::quiet_NaN();
  }
  const RouterLeadSum a{.sum = bench->out<int64_t, 1>("sum", {kLeadSums}), .lead = lead};
  bench->commit();
  const auto check = [=](Report& report) {
    int64_t want = 0;
    for (int64_t t = 0; t < rows; ++t) {
      const double x = double(lead[t]);
      want += int64_t(std::ldexp(!(x >= 0) ? 0 : std::min(x, 64.0), 32));
    }
    report.equal("sum", a.sum, {double(want), double(rows)});
  };
  return {bench, [a, bench](Exec on) { router_lead_sum(on, bench->located(a)); }, check,
          router_lead_sum_cost(a)};
}

OpInstance margin_instance(const RouterShape& s) {
  auto bench = std::make_shared<Workbench>();
  const RouterForward f = router_buffers(*bench, s);
  const RouterMargin a{.margin = bench->out<float, 1>("margin", {s.tokens}),
                       .lead = bench->out<float, 1>("lead", {s.tokens}),
                       .expert = f.expert,
                       .logits = f.logits,
                       .bias = f.bias,
                       .settings = f.settings};
  const auto check = [=](Report& report) {
    std::vector<double> margin, lead;
    for (int64_t t = 0; t < s.tokens; ++t) {
      auto key = row_keys(f, t);
      std::sort(key.rbegin(), key.rend());
      margin.push_back(s.k == s.experts ? 0 : key[size_t(s.k - 1)] - key[size_t(s.k)]);
      lead.push_back(s.k == s.experts ? 0 : key[0] - key[size_t(s.k)]);
    }
    const auto tolerance = [&](int64_t) { return tol::elementary(score_roundings(f), 2); };
    report.near("margin", a.margin, margin, tolerance);
    report.near("lead", a.lead, lead, tolerance);
  };
  const auto run = [=](Exec on) {
    router_forward(on, bench->located(f));
    router_margin(on, bench->located(a));
  };
  leave_out_of_forward(*bench, f);
  bench->must_move(f.logsumexp, 0);
  const OpInstance::Alone alone{[=](Exec on) { router_margin(on, bench->located(a)); },
                                router_margin_cost(a)};
  return {bench, run, check, router_forward_cost(f) + router_margin_cost(a), {}, alone};
}

std::vector<RouterShape> forward_shapes() {
  const RouterSettings sigmoid{.route_scale = 1.5f, .gate_scale = 2.5f};
  const RouterSettings softmax{.score = RouterScore::kSoftmax};
  const RouterSettings gates{.aux = RouterAux::kGates}, all{.aux = RouterAux::kSwitch};
  std::vector<RouterShape> shapes;
  for (const RouterSettings& r : {sigmoid, softmax}) {
    for (const Bias bias : {Bias::kNone, Bias::kRandom}) {
      for (const auto& [n, e, k] : {std::array{1, 1, 1},
                                    {3, 4, 4},
                                    {67, 9, 1},
                                    {65, 4, 2},
                                    {130, 100, 64},
                                    {1, 4096, 7},
                                    {65, 64, 16},
                                    {70, 129, 32},
                                    {65, 256, 7},
                                    {33, 4096, 7},
                                    {17, 5000, 20}}) {
        shapes.push_back({n, e, k, r, bias, ZLoss::kOff});
      }
    }
    for (const RouterAux aux : {RouterAux::kSwitch, RouterAux::kGates}) {
      for (const AuxScope scope : {AuxScope::kMicro, AuxScope::kStep, AuxScope::kSequence}) {
        RouterSettings with = r;
        with.aux = aux;
        with.scope = scope;
        with.sequence = 70;
        shapes.push_back({210, 37, 3, with, Bias::kRandom, ZLoss::kOn});
        if (scope == AuxScope::kSequence) {
          shapes.push_back({140, 250, 9, with, Bias::kNone, ZLoss::kOff});
        }
      }
    }
    RouterSettings plain = r;
    plain.normalize = NormalizeGates::kNo;
    shapes.push_back({65, 20, 3, plain, Bias::kNone, ZLoss::kOff});
    shapes.push_back({65, 20, 3, plain, Bias::kRandom, ZLoss::kOn, 4.0});
  }
  // More pieces than the sum over them takes at once, and a row of keys that is reused as a row of
  // shares.
  shapes.push_back({2113, 12, 2, gates, Bias::kNone, ZLoss::kOn});
  shapes.push_back({9, 4096, 7, all, Bias::kRandom, ZLoss::kOff});
  // 258 pieces: more than the block that adds the measures has threads.
  shapes.push_back({16449, 4, 1, gates, Bias::kNone, ZLoss::kOn});
  // More experts than registers hold, and more tokens than warps: rows are used again.
  shapes.push_back({33, 300, 3, gates, Bias::kNone, ZLoss::kOff});
  shapes.push_back({33, 300, 3, all, Bias::kRandom, ZLoss::kOff});
  // The sum of the chosen scores is below its lower bound, then that of all, then all underflow.
  shapes.push_back({65, 20, 3, sigmoid, Bias::kNone, ZLoss::kOn, 1.0, -30.0});
  shapes.push_back({65, 20, 3, all, Bias::kNone, ZLoss::kOn, 1.0, -40.0});
  shapes.push_back({33, 300, 3, all, Bias::kNone, ZLoss::kOff, 1.0, -40.0});
  shapes.push_back({33, 20, 3, all, Bias::kNone, ZLoss::kOff, 1.0, -200.0});
  // The sizes of training.
  shapes.push_back({2048, 4, 2, softmax, Bias::kNone, ZLoss::kOn});
  shapes.push_back({2048, 64, 6, sigmoid, Bias::kRandom, ZLoss::kOff});
  shapes.push_back({2048, 4096, 7, sigmoid, Bias::kRandom, ZLoss::kOff});
  return shapes;
}

}  // namespace

std::vector<OpCase> router_cases() {
  std::vector<OpCase> cases;
  for (const auto& [e, k] : {std::pair<int64_t, int64_t>{64, 6}, {256, 7}, {4096, 7}}) {
    const RouterShape s{16384, e, k, {.aux = RouterAux::kGates}, Bias::kRandom};
    cases.push_back(large("router_forward", "router_forward" + router_name(s),
                          [s] { return forward_instance(s); }));
  }
  for (const RouterShape& s : forward_shapes()) {
    cases.push_back(
        {"router_forward", "router_forward" + router_name(s), [s] { return forward_instance(s); }});
  }
  for (const int64_t experts : {42, 600}) {
    const std::string name = strprintf("router_forward order E=%ld", long(experts));
    cases.push_back({"router_forward", name, [=] { return order_instance(Bias::kNone, experts); }});
    cases.push_back({"router_forward", name + " with a bias",
                     [=] { return order_instance(Bias::kRandom, experts); }});
  }
  for (const auto& [n, e, k] :
       {std::array{9, 37, 16}, {5, 128, 128}, {70, 600, 16}, {7, 4096, 7}}) {
    cases.push_back({"router_forward", strprintf("router_forward ties N=%d E=%d K=%d", n, e, k),
                     [n = n, e = e, k = k] { return ties_instance(n, e, k); }});
  }

  for (const auto score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    for (const auto aux : {RouterAux::kSwitch, RouterAux::kGates}) {
      for (const auto& [name, tokens] : {std::pair{"uniform", Tokens::kUniform},
                                         {"tied", Tokens::kTied},
                                         {"one-sided", Tokens::kOneSided}}) {
        cases.push_back({"router_forward",
                         strprintf("router_forward aux of %s tokens, %s %s", name,
                                   score == RouterScore::kSigmoid ? "sigmoid" : "softmax",
                                   aux == RouterAux::kSwitch ? "switch" : "gates"),
                         [=, tokens = tokens] { return self_check_instance(score, aux, tokens); }});
      }
    }
  }
  std::vector<int64_t> skewed(4096, 1);
  skewed[17] = 4096;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> loads{
      {"one expert", {5}},        {"none assigned", {0, 0, 0}}, {"uniform", {7, 7, 7, 7}},
      {"one over", {9, 1, 1, 1}}, {"one exactly", {1, 2, 3}},   {"E=4096 one over", skewed}};
  for (const auto& [name, counts] : loads) {
    for (const double start : {0.0, 15.99, -16.0}) {
      cases.push_back(
          {"router_bias_update", strprintf("router_bias_update %s from %g", name.c_str(), start),
           [counts = counts, start] { return bias_instance(counts, start, BiasRule::kSign, 0); }});
    }
    cases.push_back(
        {"router_bias_update", "router_bias_update proportional " + name,
         [counts = counts] { return bias_instance(counts, 0.5, BiasRule::kProportional, 0); }});
    cases.push_back(
        {"router_bias_update", "router_bias_update by the lead " + name,
         [counts = counts] { return bias_instance(counts, 0.5, BiasRule::kSign, 0.37); }});
  }
  for (const auto score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    for (const Bias bias : {Bias::kNone, Bias::kRandom}) {
      for (const int64_t k : {1, 3, 20}) {
        const RouterShape s{33, 20, k, {.score = score}, bias};
        cases.push_back({"router_margin", "router_margin" + router_name(s),
                         [s] { return margin_instance(s); }});
      }
    }
  }
  for (const int64_t rows : {1, 33, 256, 1000}) {
    for (const double mean : {0.0, 0.5, 63.9}) {
      cases.push_back({"router_lead_sum",
                       strprintf("router_lead_sum of %ld rows about %g", long(rows), mean),
                       [=] { return lead_sum_instance(rows, mean); }});
    }
  }
  for (OpCase& c : router_backward_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace assay
