// A whole training step with every CUDA kernel on the SIMT emulator, against the same step by the
// CPU backend.
#include <algorithm>
#include <cmath>

#include "cuda/context.h"
#include "cuda/profile.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"
#include "ops/fake_quantise.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/tolerance.h"

namespace assay::test_simt_step {

namespace {

constexpr int64_t kBatch = 2, kSequence = 40;
// AdamW's first update is lr g / (|g| + eps): an eps of the gradients' size keeps small differences
// small.
constexpr double kEps = 1e-2;

Config step_config(const char* kind) {
  Config c = small_config(250);
  c.model.kv_heads = 1;
  c.optimizer.lr = 3e-3;
  c.optimizer.eps = kEps;
  if (std::string(kind) == "dense") {
    c.model.qk_norm = true;
    c.model.layers = 3;  // a gain that is no power of two
    c.model.attention_gain = AttentionGain::kDepth;
    return c;
  }
  c.model.moe = six_experts();
  c.model.vocab_size = 251;  // with 250 tokens a choice of an expert is a tie up to rounding
  if (std::string(kind) == "softmax") {
    c.model.moe->first_dense_layers = 0;
    c.model.moe->router.score = RouterScore::kSoftmax;
  }
  c.model.moe->router.bias_rate = 1e-3;
  c.model.moe->router.aux = std::string(kind) == "softmax" ? RouterAux::kSwitch : RouterAux::kGates;
  c.model.moe->router.aux_alpha = 0.01;
  c.model.moe->router.z_alpha = 0.001;
  return c;
}

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(double(v)));
  return largest;
}

void require_near(const std::string& what, const std::vector<float>& got,
                  const std::vector<float>& want, double tolerance) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double(got[i]) - double(want[i]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  INFO(what << ": off by " << worst << ", tolerance " << tolerance);
  REQUIRE(worst <= tolerance);
}

template <typename T>
void require_same_routing(const ModelFixture& a, const ModelFixture& b) {
  const auto &left = a.model->router_layers(), &right = b.model->router_layers();
  REQUIRE(left.size() == right.size());
  for (size_t l = 0; l < left.size(); ++l) {
    REQUIRE(std::abs(left[l].aux - right[l].aux) <= tol::two_backends<T>(right[l].aux));
    REQUIRE(std::abs(left[l].z - right[l].z) <= tol::two_backends<T>(right[l].z));
    REQUIRE(std::abs(left[l].gate_entropy_nats - right[l].gate_entropy_nats) <=
            tol::two_backends<T>(right[l].gate_entropy_nats));
    for (int64_t e = 0; e < left[l].counts.dim[0]; ++e) {
      REQUIRE(left[l].counts[e] == right[l].counts[e]);
      REQUIRE(left[l].bias[e] == right[l].bias[e]);
    }
  }
}

template <typename T>
void require_equal_step(const Config& config, Recipe recipe, gpu::Predecessors old = {}) {
  gpu::Context context = simt::make_context();
  context.predecessors = old;
  ModelFixture cpu(config, recipe, kBatch, kSequence, 2);
  ModelFixture gpu(config, recipe, kBatch, kSequence, 1, -1, &context);
  REQUIRE(cpu.parameter_bytes() == gpu.parameter_bytes());

  cpu.gradients(2);
  gpu.gradients(2);
  require_same_routing<T>(gpu, cpu);
  REQUIRE(std::abs(gpu.model->loss_sum() - cpu.model->loss_sum()) <=
          tol::two_backends<T>(cpu.model->loss_sum()));
  const auto want = cpu.model->parameters(), got = gpu.model->parameters();
  std::vector<double> tolerance;
  for (size_t i = 0; i < want.size(); ++i) {
    const auto gradient = cpu.values(want[i].grad);
    tolerance.push_back(tol::two_backends<T>(largest_of(gradient)));
    require_near(want[i].spec->name + ".grad", gpu.values(got[i].grad), gradient, tolerance.back());
  }

  for (ModelFixture* f : {&cpu, &gpu}) {
    f->optimizer->step(f->on, 0, 1.0);
    f->model->update_router_bias(f->on, 1.0f);
    f->read_back();
  }
  require_same_routing<T>(gpu, cpu);
  REQUIRE(std::abs(gpu.optimizer->gradient_norm() / cpu.optimizer->gradient_norm() - 1) <=
          tol::two_backends<T>(1.0));
  REQUIRE(gpu.optimizer->non_finite() == 0);
  for (size_t i = 0; i < want.size(); ++i) {
    const auto master = cpu.values(want[i].master);
    require_near(want[i].spec->name, gpu.values(got[i].master), master,
                 config.optimizer.lr * tolerance[i] / kEps + 4 * 0x1p-24 * largest_of(master));
  }
}

std::vector<std::byte> after_steps(const Config& config, Recipe recipe, const char* order) {
  simt::set_schedule(simt::parse_schedule(order));
  gpu::Context context = simt::make_context();
  ModelFixture f(config, recipe, kBatch, kSequence, 1, -1, &context);
  for (int i = 0; i < 2; ++i) f.step(i);
  std::vector<std::byte> bytes = f.parameter_bytes();
  const uint64_t checksum = f.optimizer->parameter_checksum(f.on);
  const auto* raw = reinterpret_cast<const std::byte*>(&checksum);
  bytes.insert(bytes.end(), raw, raw + sizeof checksum);
  simt::set_schedule({});
  return bytes;
}

int recorded = 0, replayed = 0;

// A SIMT emulator that counts recorded and replayed graphs.
gpu::Context counting_context() {
  static const gpu::Graphs executors = *simt::make_context().graphs;
  static const gpu::Graphs counting{[](const gpu::Context& on, CallRef calls) {
                                      recorded += 1;
                                      return executors.record(on, calls);
                                    },
                                    [](const gpu::Context& on, void* recording) {
                                      replayed += 1;
                                      executors.replay(on, recording);
                                    },
                                    executors.release};
  gpu::Context context = simt::make_context();
  context.graphs = &counting;
  return context;
}

constexpr int kSteps = 3;

// What the host reads after each of kSteps steps of kBatch micro-batches, whose numbers of unmasked
// targets differ, with an evaluation after the first step; then the parameters.
std::vector<std::vector<std::byte>> after_masked_steps(const Config& config,
                                                       gpu::Context& context) {
  ModelFixture f(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
  std::vector<std::vector<std::byte>> known(1);
  const auto add = [&](const auto& value) {
    const auto* const raw = reinterpret_cast<const std::byte*>(&value);
    known.back().insert(known.back().end(), raw, raw + sizeof value);
  };
  for (int step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < kSequence; ++i) f.token[size_t(i)] = int32_t(i * 5 + step);
    for (int i = 0; i < 20 * step; ++i) f.target[size_t(2 * i)] = -1;
    const int64_t counted = kBatch * kSequence - 20 * step;
    f.model->begin_step(f.on, {.loss = 1.0f / float(counted), .micro_share = 1.0f / float(kBatch)});
    for (int64_t m = 0; m < kBatch; ++m) f.model->forward_backward(f.on, f.micro(m, 1));
    f.optimizer->step(f.on, step, 1.0);
    f.model->update_router_bias(f.on, 1.0f);
    f.read_back();
    add(f.model->loss_sum());
    add(f.optimizer->gradient_norm());
    for (const RouterLayerState& layer : f.model->router_layers()) {
      for (const double measure :
           {layer.aux, layer.z, layer.margin, layer.lead, layer.gate_entropy_nats}) {
        add(measure);
      }
      for (int64_t e = 0; e < layer.counts.dim[0]; ++e) add(layer.counts[e]);
    }
    if (step == 0) f.model->evaluate(f.on, f.all(), f.nats);
    known.emplace_back();
  }
  known.back() = f.parameter_bytes();
  return known;
}

}  // namespace

TEST_CASE("a step by the CUDA kernels equals the CPU's") {
  // The host must not touch device memory between ops.
  simt::set_host_access(simt::HostAccess::kForbidden);
  for (const char* kind : {"dense", "sigmoid", "softmax"}) {
    INFO(kind);
    require_equal_step<float>(step_config(kind), Recipe::kFp32);
    require_equal_step<bf16>(step_config(kind), Recipe::kBf16);
  }
  simt::set_host_access(simt::HostAccess::kAllowed);
}

gpu::Predecessors all_predecessors() {
  gpu::Predecessors all;
  for (const gpu::PredecessorName& p : gpu::kPredecessorNames) all.add(p.which);
  return all;
}

TEST_CASE("a step by the predecessors of the GPU's ways equals the CPU's") {
  for (const char* kind : {"dense", "sigmoid"}) {
    INFO(kind);
    require_equal_step<bf16>(step_config(kind), Recipe::kBf16, all_predecessors());
  }
}

int64_t calls_of(const Profile& profile, const std::string& op) {
  int64_t sum = 0;
  for (const Profile::Entry& e : profile.entries()) sum += e.name == op ? e.calls : 0;
  return sum;
}

TEST_CASE(
    "a dense FFN's products pass SwiGLU's gradient, attention's kernels turn dq and dk back") {
  gpu::Context context = simt::make_context();
  Profile profile;
  ModelFixture f(step_config("dense"), Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
  f.on.profile = &profile;
  f.gradients(1);
  const int64_t layers = step_config("dense").model.layers;
  for (const char* op : {"grouped_swiglu_dgrad", "attention_backward"}) {
    INFO(op);
    REQUIRE(calls_of(profile, op) == layers);
  }
  REQUIRE(calls_of(profile, "swiglu_backward") + calls_of(profile, "rope_backward") == 0);
}

TEST_CASE("a router of many experts has its gradient from the chosen ones, or by dense products") {
  Config c = step_config("sigmoid");
  c.model.moe->experts = 256;
  c.model.moe->expert_ffn = 8;
  c.model.moe->router.z_alpha = 0;  // its gradient reaches all logits
  for (const bool old : {false, true}) {
    INFO("old " << old);
    gpu::Predecessors predecessors;
    if (old) predecessors.add(gpu::Predecessor::kRouterProducts);
    require_equal_step<float>(c, Recipe::kFp32, predecessors);

    gpu::Context context = simt::make_context();
    context.predecessors = predecessors;
    Profile profile;
    ModelFixture f(c, Recipe::kFp32, kBatch, kSequence, 1, -1, &context);
    f.on.profile = &profile;
    f.gradients(1);
    const int64_t layers = c.model.layers - c.model.moe->first_dense_layers;
    REQUIRE(calls_of(profile, "sparse_linear_backward") == (old ? 0 : layers));
  }
}

// The bytes of an op in a micro-batch.
double bytes_of(const Config& config, const std::string& op) {
  gpu::Context context = simt::make_context();
  Profile profile;
  ModelFixture f(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
  f.on.profile = &profile;
  f.gradients(1);
  double sum = 0;
  for (const Profile::Entry& e : profile.entries()) sum += e.name == op ? e.cost.bytes : 0;
  return sum;
}

TEST_CASE("a norm reads the whole stream, and writes no gradient of a branch") {
  for (const char* kind : {"dense", "sigmoid"}) {
    INFO(kind);
    const Config c = step_config(kind);
    const double n = double(kBatch * kSequence), wide = n * double(c.model.hidden) * 2;
    const double norms = double(2 * c.model.layers + 1);
    const double small = norms * 4 * (n + double(c.model.hidden));  // rstd, weight
    const double sums = norms * 4 * 2 * double(c.model.hidden);     // dweight, read and written
    REQUIRE(bytes_of(c, "rmsnorm_forward") - small == Approx(2 * norms * wide));
    REQUIRE(bytes_of(c, "rmsnorm_backward") - small - sums == Approx(4 * norms * wide));
  }
}

// The memory adds subnormal numbers as zeros, which a store keeps.
TEST_CASE("gradients that the first micro-batch stores are those that it adds to zeros") {
  for (const char* kind : {"dense", "sigmoid"}) {
    INFO(kind);
    gpu::Context now = simt::make_context(), before = simt::make_context();
    before.predecessors.add(gpu::Predecessor::kGradientZeros);
    const Config config = step_config(kind);
    ModelFixture stored(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &now);
    ModelFixture added(config, Recipe::kBf16, kBatch, kSequence, 1, -1, &before);
    for (int step = 0; step < 2; ++step) {  // the second finds the gradients of the first
      stored.gradients(kBatch);
      added.gradients(kBatch);
      const auto got = stored.model->parameters(), want = added.model->parameters();
      for (size_t i = 0; i < want.size(); ++i) {
        const auto a = stored.values(got[i].grad), b = added.values(want[i].grad);
        require_near(want[i].spec->name, a, b, 0x1p-126);
      }
    }
  }
}

// Widths are multiples of the block of 32. Both backends round the same way, but an operand that
// differs in its last bf16 bit may round to the next code of its format, so differences are larger
// than in recipe bf16.
TEST_CASE("a step in a quantised recipe by the CUDA kernels agrees with the CPU's") {
  for (const char* recipe : {"fp8_tensor", "mxfp8", "nvfp4", "mxfp4_nmoe"}) {
    CAPTURE(recipe);
    Config c = step_config("gates");
    c.model.ffn = 64;
    c.model.moe->expert_ffn = 32;
    c.precision.recipe = recipe;
    c.precision.bf16_last_layers = 0;
    gpu::Context context = simt::make_context();
    ModelFixture cpu(c, Recipe::kBf16, kBatch, kSequence, 2);
    ModelFixture gpu(c, Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
    for (ModelFixture* f : {&cpu, &gpu}) {
      f->sampled = MicroScale::Sample::kFormats;
      f->gradients(2);
    }
    REQUIRE(std::abs(gpu.model->loss_sum() - cpu.model->loss_sum()) <=
            tol::two_backends<bf16>(cpu.model->loss_sum()));
    const auto want = cpu.model->parameters(), got = gpu.model->parameters();
    for (size_t i = 0; i < want.size(); ++i) {
      const auto gradient = cpu.values(want[i].grad);
      const auto other = gpu.values(got[i].grad);
      double differences = 0, squares = 0;
      for (size_t j = 0; j < gradient.size(); ++j) {
        const double difference = double(other[j]) - double(gradient[j]);
        differences += difference * difference;
        squares += double(gradient[j]) * double(gradient[j]);
      }
      INFO(want[i].spec->name << ": " << std::sqrt(differences) << " of " << std::sqrt(squares));
      REQUIRE(std::sqrt(differences) <= tol::two_quantised_backends(std::sqrt(squares)));
    }
    const auto &left = gpu.model->quantised_operands(), &right = cpu.model->quantised_operands();
    REQUIRE(left.size() == right.size());
    for (size_t i = 0; i < left.size(); ++i) {
      INFO(left[i].weight << " " << left[i].operand);
      REQUIRE(left[i].measures[kFakeValues] == right[i].measures[kFakeValues]);
      REQUIRE(left[i].measures[kFakeErrors] ==
              Approx(right[i].measures[kFakeErrors]).epsilon(tol::two_quantised_errors()));
    }
    // The optimizer step runs the kernels that quantise the weights.
    for (ModelFixture* f : {&cpu, &gpu}) {
      f->optimizer->step(f->on, 0, 1.0);
      f->read_back();
    }
    REQUIRE(gpu.optimizer->non_finite() == 0);
  }
}

TEST_CASE("steps by the CUDA kernels have the same bits in every order of threads") {
  for (const char* kind : {"dense", "sigmoid"}) {
    Config config = step_config(kind);
    if (kind[0] == 's') config.optimizer.state = StateFormat::kBf16;
    const auto forward = after_steps(config, Recipe::kBf16, "fwd");
    REQUIRE(forward == after_steps(config, Recipe::kBf16, "rev"));
    REQUIRE(forward == after_steps(config, Recipe::kBf16, "rnd:1"));
  }
}

TEST_CASE("steps with Muon by the CUDA kernels have the same bits in every order of threads") {
  Config config = step_config("sigmoid");
  config.optimizer.kind = OptimizerKind::kMuon;
  const auto forward = after_steps(config, Recipe::kBf16, "fwd");
  REQUIRE(forward == after_steps(config, Recipe::kBf16, "rev"));
  REQUIRE(forward == after_steps(config, Recipe::kBf16, "rnd:1"));
}

// From the same gradients, and by the norm of the step: the iteration lifts differences of small
// singular values, those of single roundings too.
TEST_CASE("a step with Muon by the CUDA kernels agrees with the CPU's") {
  Config c = step_config("sigmoid");
  c.optimizer.kind = OptimizerKind::kMuon;
  gpu::Context context = simt::make_context();
  ModelFixture cpu(c, Recipe::kBf16, kBatch, kSequence, 2);
  ModelFixture gpu(c, Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
  for (ModelFixture* f : {&cpu, &gpu}) f->gradients(2);
  const auto want = cpu.model->parameters(), got = gpu.model->parameters();
  std::vector<std::vector<float>> before;
  for (size_t i = 0; i < want.size(); ++i) {
    copy_bytes(gpu.on, got[i].grad.data, want[i].grad.data, size_t(want[i].grad.bytes()));
    before.push_back(cpu.values(want[i].master));
  }
  for (ModelFixture* f : {&cpu, &gpu}) {
    f->optimizer->step(f->on, 0, 1.0);
    f->read_back();
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (!want[i].spec->is_hidden_matrix()) continue;
    const auto ours = gpu.values(got[i].master), theirs = cpu.values(want[i].master);
    double off = 0, moved = 0, kept = 0;
    for (size_t j = 0; j < theirs.size(); ++j) {
      off += std::pow(double(ours[j]) - double(theirs[j]), 2);
      moved += std::pow(double(theirs[j]) - double(before[i][j]), 2);
      kept += std::pow(double(theirs[j]), 2);
    }
    INFO(want[i].spec->name << ": step " << std::sqrt(moved) << ", off by " << std::sqrt(off));
    REQUIRE(std::sqrt(off) <=
            tol::two_backends<bf16>(std::sqrt(moved)) + tol::rounding<float>(std::sqrt(kept)));
  }
}

// Gradients of the two backends differ in their last bits, so each may round a value to either
// side: two steps of bf16, and what the difference of the gradients moves.
TEST_CASE("a step with bf16 state by the CUDA kernels agrees with the CPU's") {
  Config c = step_config("sigmoid");
  c.optimizer.state = StateFormat::kBf16;
  gpu::Context context = simt::make_context();
  ModelFixture cpu(c, Recipe::kBf16, kBatch, kSequence, 2);
  ModelFixture gpu(c, Recipe::kBf16, kBatch, kSequence, 1, -1, &context);
  REQUIRE(cpu.parameter_bytes() == gpu.parameter_bytes());
  REQUIRE(cpu.optimizer->parameter_checksum(cpu.on) == gpu.optimizer->parameter_checksum(gpu.on));
  for (ModelFixture* f : {&cpu, &gpu}) f->gradients(2);
  const auto want = cpu.model->parameters(), got = gpu.model->parameters();
  std::vector<double> tolerance;
  for (const ParameterRef& p : want) {
    tolerance.push_back(tol::two_backends<bf16>(largest_of(cpu.values(p.grad))));
  }
  for (ModelFixture* f : {&cpu, &gpu}) {
    f->optimizer->step(f->on, 0, 1.0);
    f->read_back();
  }
  REQUIRE(gpu.optimizer->non_finite() == 0);
  for (size_t i = 0; i < want.size(); ++i) {
    if (!want[i].bf16_state()) continue;
    const auto wide = [](const std::vector<bf16>& x) {
      return std::vector<float>(x.begin(), x.end());
    };
    const auto weight = wide(cpu.values(want[i].weight));
    require_near(
        want[i].spec->name, wide(gpu.values(got[i].weight)), weight,
        c.optimizer.lr * tolerance[i] / kEps + 4 * tol::unit_roundoff<bf16>() * largest_of(weight));
  }
}

TEST_CASE("a replayed micro-batch gives the bits of one whose kernels are launched one by one") {
  for (const char* kind : {"dense", "sigmoid", "softmax"}) {
    INFO(kind);
    const Config config = step_config(kind);
    gpu::Context waiting = counting_context(), queued = counting_context();
    waiting.launches = gpu::Context::Launches::kWaiting;
    recorded = replayed = 0;
    const auto want = after_masked_steps(config, waiting);
    REQUIRE(recorded == 0);
    for (const simt::Pace pace : {simt::Pace::kPrompt, simt::Pace::kLate}) {
      recorded = replayed = 0;
      simt::set_pace(pace);
      const auto got = after_masked_steps(config, queued);
      simt::set_pace(simt::Pace::kPrompt);
      for (size_t step = 0; step < want.size(); ++step) {
        INFO("step " << step << (pace == simt::Pace::kLate ? ", late" : ""));
        REQUIRE(got[step] == want[step]);
      }
      REQUIRE(recorded == 2);  // the first micro-batch of a step, and the others
      REQUIRE(replayed == kSteps * kBatch - 2);
    }
  }
}

TEST_CASE("evaluation and the routers' probe agree with the CPU's") {
  const Config config = step_config("sigmoid");
  gpu::Context context = simt::make_context();
  ModelFixture cpu(config, Recipe::kFp32, kBatch, kSequence, 2);
  ModelFixture gpu(config, Recipe::kFp32, kBatch, kSequence, 1, -1, &context);
  std::vector<int32_t> choices[2];
  for (ModelFixture* f : {&cpu, &gpu}) {
    f->model->evaluate(f->on, f->all(), f->nats);
    auto& c = choices[f == &gpu];
    c.resize(size_t(kBatch * kSequence * config.model.moe->top_k));
    f->model->route(f->on, f->all(), {c.data(), {1, int64_t(c.size())}});
  }
  REQUIRE(choices[0] == choices[1]);
  for (int64_t i = 0; i < kBatch * kSequence; ++i) {
    REQUIRE(std::abs(cpu.nats[i] - gpu.nats[i]) <= tol::two_backends<float>(cpu.nats[i]));
  }
}

}  // namespace assay::test_simt_step
