// optimizer.kind muon: what is orthogonalised as one matrix, steps beside the scalar reference,
// also without a gradient, equal bits for any threads and after a resume, planned bytes.
#include <cmath>
#include <cstring>

#include "models/audit/audit.h"
#include "models/decoder/training_memory.h"
#include "models/parameters/table.h"
#include "ops/newton_schulz.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/ref/cast.h"
#include "tests/ref/muon.h"
#include "tests/ref/newton_schulz.h"
#include "tests/tolerance.h"

namespace assay::test_muon {

namespace {

Config config_of(OptimizerKind kind) {
  Config c;
  c.model.hidden = 64;
  c.model.layers = 2;
  c.model.heads = 2;
  c.model.kv_heads = 1;
  c.model.ffn = 96;
  c.model.vocab_size = 250;
  c.model.moe = MoeConfig{.experts = 6,
                          .top_k = 2,
                          .shared = 1,
                          .expert_ffn = 40,
                          .first_dense_layers = 1,
                          .router = {}};
  c.model.moe->router.bias_rate = 1e-3;
  c.optimizer.lr = 3e-3;
  c.optimizer.kind = kind;
  return c;
}

std::vector<TensorRef> tensors_of(ModelFixture& f) {
  std::vector<TensorRef> tensors = f.model->tensors();
  for (const TensorRef& t : f.optimizer->tensors()) tensors.push_back(t);
  return tensors;
}

// One logical matrix of a parameter.
struct Part {
  int64_t begin, rows, cols;
};

// As docs/numerics.md says, apart from muon_stacks().
std::vector<Part> parts_of(const ParameterSpec& spec, const ModelConfig& c) {
  const auto ends_in = [&](const std::string& end) {
    return spec.name.size() > end.size() &&
           spec.name.compare(spec.name.size() - end.size(), end.size(), end) == 0;
  };
  const size_t rank = spec.shape.size();
  const int64_t rows = spec.shape[rank - 2], cols = spec.shape[rank - 1];
  const int64_t experts = rank == 3 ? spec.shape[0] : 1;
  std::vector<int64_t> heights = {rows};
  if (ends_in("gate_up")) heights = {rows / 2, rows / 2};
  if (ends_in("attn.qkv")) {
    const int64_t kv = c.resolved_kv_heads() * c.resolved_head_dim();
    heights = {rows - 2 * kv, kv, kv};
  }
  std::vector<Part> parts;
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    for (const int64_t h : heights) {
      parts.push_back({begin, h, cols});
      begin += h * cols;
    }
  }
  return parts;
}

std::vector<double> doubles(const View<float, 1>& x) {
  return {x.data, x.data + x.size()};
}

// One step from momentum 0, of every hidden matrix.
void check_step(const Config& c, Recipe recipe) {
  const MuonConfig muon = c.optimizer.muon.value_or(MuonConfig{});
  ModelFixture f(c, recipe, 4, 20);
  f.gradients();
  std::vector<std::vector<double>> before;
  for (const ParameterRef& p : f.model->parameters()) before.push_back(doubles(p.master));
  f.optimizer->step(f.on, 0, 1.0);
  f.read_back();
  const double clip = f.optimizer->clip_factor();
  REQUIRE(clip < 1);
  const auto parameters = f.model->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterRef& p = parameters[i];
    if (!p.spec->is_hidden_matrix()) continue;
    const double base = p.spec->group == ParameterGroup::kExperts
                            ? c.optimizer.expert_lr.value_or(c.optimizer.lr)
                            : c.optimizer.lr;
    const double lr = muon.lr.value_or(base);
    const double decay = lr * muon.weight_decay.value_or(c.optimizer.weight_decay);
    const std::vector<double> grad = doubles(p.grad);
    for (const Part& part : parts_of(*p.spec, c.model)) {
      ref::Matrix u;
      for (int64_t j = part.begin; j < part.begin + part.rows * part.cols; ++j) {
        ref::Muon x{0, grad[size_t(j)] * clip};
        u.push_back(ref::bf16_nearest_even(x.momentum(muon.momentum, muon.nesterov)));
      }
      const ref::Matrix o =
          ref::newton_schulz(u, part.rows, part.cols, muon.steps, ref::bf16_nearest_even);
      const ref::Matrix exact =
          ref::newton_schulz(u, part.rows, part.cols, muon.steps, [](double x) { return x; });
      const double factor = muon.adjust == MuonAdjust::kOriginal
                                ? ref::muon_original(part.rows, part.cols)
                                : ref::muon_match_rms(part.rows, part.cols);
      // By the norm of the step: the iteration lifts roundings with the small singular values.
      double off = 0, away = 0, kept = 0;
      for (size_t j = 0; j < o.size(); ++j) {
        const size_t at = size_t(part.begin) + j;
        const double step = decay * before[i][at] + lr * factor * o[j];
        const double error = double(p.master[int64_t(at)]) - (before[i][at] - step);
        off += error * error;
        const double rounded = lr * factor * (o[j] - exact[j]);
        away += rounded * rounded;
        kept += before[i][at] * before[i][at];
      }
      INFO(p.spec->name << " from " << part.begin << ": rounded away " << std::sqrt(away)
                        << ", off by " << std::sqrt(off));
      REQUIRE(std::sqrt(off) <=
              tol::rounded_twice(std::sqrt(away)) + tol::rounding<float>(std::sqrt(kept)));
    }
  }
}

}  // namespace

TEST_CASE("a step with Muon agrees with the scalar reference") {
  Config c = config_of(OptimizerKind::kMuon);
  c.optimizer.clip = 1e-2;
  SECTION("defaults, bf16") {
    check_step(c, Recipe::kBf16);
  }
  SECTION("defaults, fp32") {
    check_step(c, Recipe::kFp32);
  }
  SECTION("own settings") {
    c.optimizer.expert_lr = 1e-3;
    c.optimizer.muon = MuonConfig{.lr = 2e-2,
                                  .momentum = 0.9,
                                  .nesterov = false,
                                  .steps = 3,
                                  .weight_decay = 0.3,
                                  .adjust = MuonAdjust::kOriginal};
    check_step(c, Recipe::kBf16);
  }
  SECTION("experts' learning rate") {
    c.optimizer.expert_lr = 1e-3;
    check_step(c, Recipe::kBf16);
  }
}

// docs/numerics.md#muon: the norm divides out how far the momentum has faded.
TEST_CASE("an expert without tokens keeps the length of its steps until its momentum is gone") {
  const Config c = config_of(OptimizerKind::kMuon);
  ModelFixture f(c, Recipe::kFp32, 4, 20);
  f.step(0);
  ParameterRef down;
  for (const ParameterRef& p : f.model->parameters()) {
    if (p.spec->name == "blocks.1.moe.down") down = p;
  }
  float* momentum = nullptr;
  for (const TensorRef& t : f.optimizer->tensors()) {
    if (t.name == "blocks.1.moe.down.momentum") momentum = static_cast<float*>(t.data);
  }
  REQUIRE(momentum != nullptr);
  const int64_t rows = down.spec->shape[1], cols = down.spec->shape[2], size = rows * cols;
  const double lr = c.optimizer.lr, decay = lr * c.optimizer.weight_decay;
  const double factor = ref::muon_match_rms(rows, cols);
  const auto length = [](const auto& x) {
    double squares = 0;
    for (const double e : x) squares += e * e;
    return std::sqrt(squares);
  };

  // A step in which the first expert has no gradient: how far it went beside its decay, as a part
  // of lr r, and how far by the formula.
  struct Step {
    double went, formula;
  };
  const auto idle = [&](int64_t step) {
    f.gradients();
    std::fill_n(down.grad.data, size, 0.0f);
    const std::vector<double> before = doubles(down.master.rows(0, size));
    ref::Matrix u;
    for (int64_t j = 0; j < size; ++j) {
      ref::Muon x{double(momentum[j]), 0};
      u.push_back(ref::bf16_nearest_even(x.momentum(MuonConfig{}.momentum, true)));
    }
    f.optimizer->step(f.on, step, 1.0);
    f.read_back();
    std::vector<double> went;
    for (int64_t j = 0; j < size; ++j) {
      const double was = before[size_t(j)];
      went.push_back((was - double(down.master[j]) - decay * was) / (lr * factor));
    }
    return Step{length(went), length(ref::newton_schulz(u, rows, cols, MuonConfig{}.steps,
                                                        ref::bf16_nearest_even))};
  };
  const auto fade = [&](double by) {
    for (int64_t j = 0; j < size; ++j) momentum[j] *= float(by);
  };

  const Step first = idle(1);
  REQUIRE(first.went > 1);
  REQUIRE(first.went == Approx(first.formula).epsilon(0.02));
  fade(std::pow(MuonConfig{}.momentum, 100));
  const Step late = idle(2);
  REQUIRE(late.went == Approx(late.formula).epsilon(0.02));
  REQUIRE(late.went == Approx(first.went).epsilon(0.1));
  fade(1e-12 / length(std::vector<double>(momentum, momentum + size)));
  REQUIRE(idle(3).went < 0.01 * first.went);
}

TEST_CASE("Muon steps the matrices inside the blocks, AdamW the rest") {
  ModelFixture f(config_of(OptimizerKind::kMuon), Recipe::kBf16, 4, 20);
  std::vector<std::string> names;
  for (const TensorRef& t : f.optimizer->tensors()) names.push_back(t.name);
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* name : {"blocks.0.attn.qkv", "blocks.0.attn.out", "blocks.0.ffn.gate_up",
                           "blocks.0.ffn.down", "blocks.1.moe.gate_up", "blocks.1.moe.down",
                           "blocks.1.moe.shared.gate_up", "blocks.1.moe.shared.down"}) {
    INFO(name);
    REQUIRE(has(name + std::string(".momentum")));
    REQUIRE(!has(name + std::string(".m")));
  }
  for (const char* name : {"embed.weight", "head.weight", "final.norm", "blocks.0.attn.norm",
                           "blocks.1.ffn.norm", "blocks.1.moe.router"}) {
    INFO(name);
    REQUIRE(has(name + std::string(".m")));
    REQUIRE(has(name + std::string(".v")));
    REQUIRE(!has(name + std::string(".momentum")));
  }
}

TEST_CASE("q, k, v, gate, up and every expert are matrices of their own") {
  const Config c = config_of(OptimizerKind::kMuon);
  for (const ParameterSpec& spec : parameter_table(c.model)) {
    if (!spec.is_hidden_matrix()) continue;
    INFO(spec.name);
    std::vector<Part> got;
    for (const MuonStack& s : muon_stacks(spec)) {
      for (int64_t n = 0; n < s.n; ++n) {
        got.push_back({s.begin + n * s.rows * s.cols, s.rows, s.cols});
      }
    }
    const std::vector<Part> want = parts_of(spec, c.model);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(got[i].begin == want[i].begin);
      REQUIRE(got[i].rows == want[i].rows);
      REQUIRE(got[i].cols == want[i].cols);
    }
  }
}

TEST_CASE("Muon has the same bits for any threads, and when the step is sampled") {
  for (const Recipe recipe : {Recipe::kBf16, Recipe::kFp32}) {
    const Config c = config_of(OptimizerKind::kMuon);
    ModelFixture one(c, recipe, 4, 20, 1), three(c, recipe, 4, 20, 3);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(one.step(i, 2) == three.step(i, 2, Optimizer::Sample::kRatios));
    }
    REQUIRE(one.parameter_bytes() == three.parameter_bytes());
    for (const GroupRatio& ratio : three.optimizer->ratios()) {
      REQUIRE(ratio.update > 0);
      REQUIRE(ratio.update < 1);
    }
  }
}

TEST_CASE("a resumed run with Muon has the bits of an uninterrupted one") {
  const Config c = config_of(OptimizerKind::kMuon);
  ModelFixture whole(c, Recipe::kBf16, 4, 20), resumed(c, Recipe::kBf16, 4, 20);
  for (int i = 0; i < 2; ++i) whole.step(i, 2);
  for (int i = 0; i < 3; ++i) resumed.step(i, 2);  // leaves old contents to overwrite
  const std::vector<TensorRef> from = tensors_of(whole), to = tensors_of(resumed);
  REQUIRE(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    std::memcpy(to[i].data, from[i].data, size_t(from[i].bytes()));
  }
  resumed.model->refresh_weights(resumed.on);
  for (int i = 2; i < 4; ++i) REQUIRE(whole.step(i, 2) == resumed.step(i, 2));
  REQUIRE(whole.parameter_bytes() == resumed.parameter_bytes());
}

// With match_rms_adamw an element of a step is about 0.2 lr, as AdamW's, so the same learning rate
// must learn the batch.
TEST_CASE("a model with Muon learns one batch at AdamW's learning rate") {
  ModelFixture f(config_of(OptimizerKind::kMuon), Recipe::kBf16, 4, 20);
  const double start = f.step(0);
  double last = start;
  for (int i = 1; i < 40; ++i) last = f.step(i);
  INFO("loss " << start << " -> " << last);
  REQUIRE(last < start / 2);
}

TEST_CASE("Muon's workspace on a GPU has room for sums of pieces only where a matrix is cut") {
  constexpr int64_t kMib = int64_t{1} << 20;
  for (const auto& [rows, cols] : {std::pair{768, 256}, {256, 768}}) {
    REQUIRE(newton_schulz_workspace_bytes(Backend::kGpu, 4096, rows, cols) < 2 * kMib);
  }
  REQUIRE(newton_schulz_workspace_bytes(Backend::kGpu, 2, 40000, 1024) > 4 * 1024 * 1024 * 4);
}

TEST_CASE("the audit counts one momentum per hidden matrix") {
  const Config adamw = config_of(OptimizerKind::kAdamW), muon = config_of(OptimizerKind::kMuon);
  int64_t hidden = 0;
  for (const ParameterSpec& spec : parameter_table(muon.model)) {
    if (spec.is_hidden_matrix()) hidden += spec.size();
  }
  REQUIRE(audit(adamw).moment_bytes - audit(muon).moment_bytes == 4 * hidden);
  const TrainingMemory memory(muon, Recipe::kBf16);
  int64_t planned = 0;
  for (const TensorRef& t : memory.optimizer->tensors()) planned += t.bytes();
  REQUIRE(planned == audit(muon).moment_bytes);
}

}  // namespace assay::test_muon
