#include <thread>

#include "tests/ops/matrix_case.h"
#include "tests/ops/router_case.h"

namespace assay {

namespace {

constexpr float kAuxWeight = 0.75f, kZWeight = 0.3f;

// Forward, then backward on its results, which gives the complete gradient.
template <typename T>
struct Chain {
  RouterForward forward;
  RouterBackward<T> backward;
};

template <typename T>
Chain<T> make_chain(Workbench& bench, const RouterShape& s) {
  const RouterForward f = router_buffers(bench, s);
  const RouterBackward<T> b{.dlogits = bench.out<T, 2>("dlogits", {s.tokens, s.experts}),
                            .dgate = bench.in<float, 2>("dgate", {s.tokens, s.k}),
                            .expert = f.expert,
                            .logits = f.logits,
                            .logsumexp = f.logsumexp,
                            .score_sum = f.score_sum,
                            .aux_slope = f.aux_slope,
                            .aux_weight = s.settings.aux == RouterAux::kNone ? 0 : kAuxWeight,
                            .z_weight = s.z == ZLoss::kOn ? kZWeight : 0,
                            .settings = s.settings};
  return {f, b};
}

// The sparse path reads the chosen logits alone.
template <typename T>
void moves_what_the_path_reads(Workbench& bench, const RouterBackward<T>& a) {
  if (a.path == RouterPath::kDense || !router_backward_is_sparse(a)) return;
  bench.must_move(a.logits, 4 * double(a.expert.size()));
  bench.must_move(a.logsumexp, 0);
}

template <typename T>
OpInstance gradient_instance(const RouterShape& s, RouterPath path) {
  auto bench = std::make_shared<Workbench>();
  auto [f, b] = make_chain<T>(*bench, s);
  b.path = path;
  const auto counts0 = Workbench::doubles(f.counts);
  const auto check = [=, f = f, b = b](Report& report) {
    auto p = router_problem(f, counts0);
    p.aux_weight = b.aux_weight;
    p.z_weight = b.z_weight;
    const auto logits = Workbench::doubles(f.logits);
    ref::Router<double> router;
    router.forward(p, logits);
    std::vector<double> want, size;
    router.backward(p, logits, Workbench::doubles(b.dgate), want, size);
    const double roundings = score_roundings(f);
    report.near("dlogits", b.dlogits, want, [&](int64_t i) {
      return tol::rounding<T>(want[size_t(i)]) + tol::elementary(roundings, 2 * size[size_t(i)]) +
             tol::sum(double(s.experts), size[size_t(i)]);
    });
  };
  const auto run = [f = f, b = b, bench = bench](Exec on) {
    router_forward(on, bench->located(f));
    router_backward<T>(on, bench->located(b));
  };
  leave_out_of_forward(*bench, f);
  bench->must_move(f.bias, 0);
  moves_what_the_path_reads(*bench, b);
  const OpInstance::Alone alone{
      [b = b, bench = bench](Exec on) { router_backward<T>(on, bench->located(b)); },
      router_backward_cost(b)};
  return {bench, run, check, router_forward_cost(f) + router_backward_cost(b), {}, alone};
}

// What forward stores for backward, computed by the CPU.
struct Stored {
  View<int32_t, 2> expert;
  View<float, 1> logsumexp = {}, score_sum = {};
  View<float, 2> aux_slope = {};
};
Stored stored_by_forward(Workbench& bench, const RouterShape& s, const View<float, 2>& logits) {
  const RouterSettings& r = s.settings;
  const int64_t n = s.tokens, experts = s.experts, pieces = router_pieces(n, r);
  const bool softmax = r.score == RouterScore::kSoftmax, aux = r.aux != RouterAux::kNone;
  const Fill zero{Fill::kZero};
  Stored stored{.expert = bench.in<int32_t, 2>("expert", {n, s.k}, zero)};
  if (softmax || s.z == ZLoss::kOn) stored.logsumexp = bench.in<float, 1>("logsumexp", {n}, zero);
  if (!softmax && r.aux == RouterAux::kSwitch) {
    stored.score_sum = bench.in<float, 1>("score_sum", {n}, zero);
  }
  if (aux) {
    stored.aux_slope = bench.in<float, 2>("aux_slope", {router_groups(n, r), experts}, zero);
  }
  std::vector<float> gate(size_t(n * s.k)), share(size_t(pieces * experts));
  std::vector<int32_t> count(size_t(pieces * experts));
  RouterForward f{.expert = stored.expert,
                  .gate = {gate.data(), {n, s.k}},
                  .logsumexp = stored.logsumexp,
                  .score_sum = stored.score_sum,
                  .aux_slope = stored.aux_slope,
                  .count_partial = {count.data(), {pieces, experts}},
                  .logits = logits,
                  .settings = r};
  if (aux) f.share_partial = {share.data(), {pieces, experts}};
  router_forward({.threads = int(std::thread::hardware_concurrency())}, f);
  bench.commit();
  return stored;
}

// Backward alone. All rows are checked, or some of large cases, with the slopes that forward gave.
template <typename T>
OpInstance backward_instance(const RouterShape& s) {
  auto bench = std::make_shared<Workbench>();
  const auto logits =
      bench->in<float, 2>("logits", {s.tokens, s.experts}, normal(s.spread, s.mean));
  const Stored stored = stored_by_forward(*bench, s, logits);
  const RouterBackward<T> a{.dlogits = bench->out<T, 2>("dlogits", {s.tokens, s.experts}),
                            .dgate = bench->in<float, 2>("dgate", {s.tokens, s.k}),
                            .expert = stored.expert,
                            .logits = logits,
                            .logsumexp = stored.logsumexp,
                            .score_sum = stored.score_sum,
                            .aux_slope = stored.aux_slope,
                            .aux_weight = s.settings.aux == RouterAux::kNone ? 0 : kAuxWeight,
                            .z_weight = s.z == ZLoss::kOn ? kZWeight : 0,
                            .settings = s.settings};
  moves_what_the_path_reads(*bench, a);
  const auto check = [=](Report& report) {
    const auto rows = sample(s.tokens, 100.0 * double(s.experts));
    const auto expert = chosen_rows(a.expert.data, s.k, rows);
    ref::RouterProblem p{s.settings, int64_t(rows.size()), s.experts, s.k};
    p.expert.assign(expert.values.begin(), expert.values.end());
    p.aux_weight = a.aux_weight;
    // The reference divides by its own number of tokens.
    p.z_weight = a.z_weight * double(p.tokens) / double(s.tokens);
    const auto z = chosen_doubles(a.logits, rows);
    std::vector<double> slope(size_t(s.experts), 0.0), want, size;
    if (!a.aux_slope.empty()) slope = Workbench::doubles(a.aux_slope);
    ref::Router<double> router;
    router.forward(p, z);
    router.backward(p, slope, z, chosen_doubles(a.dgate, rows), want, size);
    double largest = 0;
    for (const double x : z) largest = std::max(largest, std::abs(x));
    auto got = chosen_rows(a.dlogits.data, s.experts, rows);
    report.near("dlogits", got.view(), want, [&](int64_t i) {
      return tol::rounding<T>(want[size_t(i)]) +
             tol::elementary(score_roundings(largest, s.settings), 2 * size[size_t(i)]) +
             tol::sum(double(s.experts), size[size_t(i)]);
    });
  };
  return {bench, [a, bench](Exec on) { router_backward<T>(on, bench->located(a)); }, check,
          router_backward_cost(a)};
}

// Compares the sparse results with the dense path: zeros outside the chosen columns, and equal
// chosen columns.
OpInstance paths_instance(const RouterShape& s) {
  auto bench = std::make_shared<Workbench>();
  auto [f, sparse] = make_chain<float>(*bench, s);
  sparse.dchosen = bench->out<float, 2>("dchosen", {s.tokens, s.k});
  RouterBackward<float> dense = sparse;
  dense.dchosen = {};
  dense.dlogits = bench->out<float, 2>("dense", {s.tokens, s.experts});
  dense.path = RouterPath::kDense;
  const auto check = [=, f = f, sparse = sparse](Report& report) {
    report.below("the path is dense", router_backward_is_sparse(sparse) ? 0 : 1, 0.5);
    const auto want = Workbench::doubles(dense.dlogits);
    std::vector<double> chosen, largest(size_t(s.tokens), 0.0);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t i = 0; i < s.k; ++i) {
        chosen.push_back(double(sparse.dlogits.at(t, f.expert.at(t, i))));
        largest[size_t(t)] += std::abs(double(sparse.dgate.at(t, i))) * f.settings.gate_scale;
      }
    }
    report.near("dlogits", sparse.dlogits, want,
                [&](int64_t i) { return tol::elementary(1, largest[size_t(i / s.experts)]); });
    report.equal("dchosen", sparse.dchosen, chosen);
    std::vector<double> zeros = Workbench::doubles(sparse.dlogits);
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t e = 0; e < s.experts; ++e) {
        const int32_t* ids = f.expert.row(t);
        if (std::find(ids, ids + s.k, e) == ids + s.k) zeros[size_t(t * s.experts + e)] = 0;
      }
    }
    report.equal("zeros outside the chosen", sparse.dlogits, zeros);
  };
  const auto run = [f = f, sparse = sparse, dense, bench](Exec on) {
    router_forward(on, bench->located(f));
    router_backward<float>(on, bench->located(sparse));
    router_backward<float>(on, bench->located(dense));
  };
  return {bench, run, check, {}};
}

std::vector<RouterShape> all_settings(int64_t tokens, int64_t experts, int64_t k) {
  std::vector<RouterShape> shapes;
  for (const auto score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    for (const auto normalize : {NormalizeGates::kYes, NormalizeGates::kNo}) {
      for (const auto aux : {RouterAux::kNone, RouterAux::kSwitch, RouterAux::kGates}) {
        for (const auto scope : {AuxScope::kMicro, AuxScope::kStep, AuxScope::kSequence}) {
          if (aux == RouterAux::kNone && scope != AuxScope::kMicro) continue;
          for (const ZLoss z : {ZLoss::kOff, ZLoss::kOn}) {
            const RouterSettings settings{.score = score,
                                          .normalize = normalize,
                                          .route_scale = 1.5f,
                                          .gate_scale = 2.5f,
                                          .aux = aux,
                                          .scope = scope,
                                          .sequence = tokens / 2};
            shapes.push_back({tokens, experts, k, settings, Bias::kRandom, z});
          }
        }
      }
    }
  }
  return shapes;
}

// Proves the reference's gradient of sum dgate gate + aux_weight aux + z_weight z, for all settings
// and with the sums of the scores below their lower bound.
OpInstance reference_instance() {
  auto bench = std::make_shared<Workbench>();
  const int64_t n = 4, experts = 5, k = 2;
  const auto base = Workbench::doubles(bench->in<float, 2>("logits", {n, experts}));
  const auto dgate = Workbench::doubles(bench->in<float, 2>("dgate", {n, k}));
  const auto check = [=](Report& report) {
    for (RouterShape s : all_settings(n, experts, k)) {
      for (const double mean : {0.0, -25.0, -40.0}) {
        s.mean = mean;
        std::vector<double> logits = base;
        for (double& x : logits) x += mean;
        ref::RouterProblem p{s.settings, n, experts, k, kAuxWeight, kZWeight};
        if (s.z == ZLoss::kOff) p.z_weight = 0;
        p.counts_before = {1, 7, 2, 0, 4};
        for (int64_t t = 0; t < n; ++t) {
          const auto row = ref::Router<double>::row(logits, t, experts);
          const auto ids = ref::select_experts(ref::scores(s.settings, row), k);
          p.expert.insert(p.expert.end(), ids.begin(), ids.end());
        }
        ref::Router<double> router;
        router.forward(p, logits);
        std::vector<double> claimed, size;
        router.backward(p, logits, dgate, claimed, size);
        const auto loss = [&](const ref::ComplexVector& z) {
          ref::Router<ref::Complex> r;
          r.forward(p, z);
          ref::Complex sum = r.aux * p.aux_weight + r.z * p.z_weight;
          for (size_t i = 0; i < dgate.size(); ++i) sum += dgate[i] * r.gate[i];
          return sum;
        };
        report.below("dlogits by complex step" + router_name(s),
                     ref::complex_step_error(loss, logits, claimed), 1e-12);
      }
    }
  };
  return {bench, [](Exec) {}, check, {}};
}

template <typename T>
void add_gradients(std::vector<OpCase>& cases, const std::vector<RouterShape>& shapes,
                   RouterPath path) {
  for (const RouterShape& s : shapes) {
    cases.push_back({"router_backward",
                     std::string("router_gradient ") + dtype_name<T>() + router_name(s) +
                         (path == RouterPath::kDense ? " dense" : ""),
                     [s, path] { return gradient_instance<T>(s, path); }});
  }
}

}  // namespace

std::vector<OpCase> router_backward_cases() {
  std::vector<OpCase> cases{
      {"router_reference", "router_reference complex step", reference_instance}};
  const auto settings = all_settings(38, 21, 3);
  add_gradients<float>(cases, settings, RouterPath::kAuto);
  add_gradients<bf16>(cases, settings, RouterPath::kAuto);

  const RouterSettings sigmoid{}, softmax{.score = RouterScore::kSoftmax};
  const RouterSettings plain{.normalize = NormalizeGates::kNo};
  const RouterSettings gates{.aux = RouterAux::kGates};
  const RouterSettings switch_sigmoid{.aux = RouterAux::kSwitch};
  const RouterSettings switch_softmax{.score = RouterScore::kSoftmax, .aux = RouterAux::kSwitch};
  std::vector<RouterShape> shapes{
      {1, 1, 1, sigmoid, Bias::kNone, ZLoss::kOff, 1.0, 0.0},
      {1, 1, 1, switch_softmax, Bias::kNone, ZLoss::kOn, 1.0, 0.0},
      {67, 4, 4, softmax, Bias::kNone, ZLoss::kOff, 1.0, 0.0},
      {67, 4, 4, switch_sigmoid, Bias::kNone, ZLoss::kOn, 1.0, 0.0},
      {65, 20, 3, gates, Bias::kNone, ZLoss::kOn, 1.0, -30.0},
      {65, 20, 3, switch_sigmoid, Bias::kNone, ZLoss::kOn, 1.0, -40.0},
      {33, 20, 3, switch_sigmoid, Bias::kNone, ZLoss::kOff, 1.0, -200.0},
      {65, 20, 3, softmax, Bias::kRandom, ZLoss::kOn, 6.0, 0.0},
      {33, 64, 16, softmax, Bias::kRandom, ZLoss::kOn, 1.0, 0.0},
      {9, 4096, 7, switch_sigmoid, Bias::kRandom, ZLoss::kOn, 1.0, 0.0},
      {9, 4096, 7, gates, Bias::kRandom, ZLoss::kOff, 1.0, 0.0},
      {2048, 4, 2, switch_softmax, Bias::kNone, ZLoss::kOn, 1.0, 0.0},
      {2048, 4096, 7, sigmoid, Bias::kRandom, ZLoss::kOff, 1.0, 0.0},
      {256, 4096, 7, switch_sigmoid, Bias::kRandom, ZLoss::kOff, 1.0, 0.0}};
  add_gradients<float>(cases, shapes, RouterPath::kAuto);
  add_gradients<bf16>(cases, shapes, RouterPath::kAuto);
  const std::vector<RouterShape> sparse{{67, 20, 3, sigmoid, Bias::kNone, ZLoss::kOff, 1.0, 0.0},
                                        {67, 20, 3, softmax, Bias::kNone, ZLoss::kOff, 1.0, 0.0},
                                        {67, 20, 3, plain, Bias::kRandom, ZLoss::kOff, 1.0, 0.0},
                                        {67, 20, 3, gates, Bias::kRandom, ZLoss::kOff, 1.0, 0.0},
                                        {67, 300, 7, softmax, Bias::kRandom, ZLoss::kOff, 1.0, 0.0},
                                        {67, 20, 1, sigmoid, Bias::kNone, ZLoss::kOff, 1.0, -30.0}};
  add_gradients<float>(cases, sparse, RouterPath::kDense);
  for (const RouterShape& s : sparse) {
    cases.push_back(
        {"router_backward", "router_paths" + router_name(s), [s] { return paths_instance(s); }});
  }

  const auto backward_name = [](const RouterShape& s) {
    return "router_backward bf16" + router_name(s);
  };
  for (const RouterShape& s : {RouterShape{67, 20, 3, gates}, RouterShape{67, 20, 3, softmax},
                               RouterShape{67, 20, 3, switch_sigmoid},
                               RouterShape{67, 20, 3, switch_softmax, Bias::kNone, ZLoss::kOn}}) {
    cases.push_back(
        {"router_backward", backward_name(s), [s] { return backward_instance<bf16>(s); }});
  }
  // 16,384 tokens: the chosen logits alone, and with the loss whose gradient reaches all.
  for (const auto& [e, k] : {std::pair<int64_t, int64_t>{64, 6}, {256, 7}, {4096, 7}}) {
    for (const RouterShape& s :
         {RouterShape{16384, e, k, gates},
          RouterShape{16384, e, k, switch_softmax, Bias::kNone, ZLoss::kOn}}) {
      cases.push_back(
          large("router_backward", backward_name(s), [s] { return backward_instance<bf16>(s); }));
    }
  }
  return cases;
}

}  // namespace assay
