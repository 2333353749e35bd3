// Model::extend against Model::evaluate: texts grow call by call with a KV cache.
#include <cmath>

#include "cuda/context.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/tolerance.h"

namespace assay::test_extend {

namespace {

constexpr int64_t kTexts = 3, kSequence = 40, kVocab = 70;

Config config_of(const std::string& kind) {
  Config c = small_config(kVocab);
  c.model.kv_heads = 1;
  c.model.qk_norm = kind == "dense";
  c.model.tie_embeddings = kind == "dense";
  c.model.logit_gain = kind == "dense" ? 0.5 : 1.0;
  if (kind == "moe") {
    c.model.moe = six_experts();
  }
  return c;
}

struct Fixture : ModelFixture {
  Fixture(const std::string& kind, Recipe recipe, int threads = 2, gpu::Context* gpu = nullptr)
      : ModelFixture(config_of(kind), recipe, kTexts, kSequence, threads, -1, gpu, kTexts) {}

  // Extends the cached texts by the given parts of the fixture's sequences (text i holds sequence
  // i). Returns the logits after each part.
  std::vector<float> extended(const std::vector<TextPart>& parts) {
    std::vector<int32_t> tokens;
    for (const TextPart& p : parts) {
      const auto first = token.begin() + p.text * kSequence + p.position;
      tokens.insert(tokens.end(), first, first + p.tokens);
    }
    const auto count = static_cast<int64_t>(parts.size());
    std::vector<float> logits(size_t(count * kVocab));
    const View<const int32_t, 1> token_view{tokens.data(), {int64_t(tokens.size())}};
    const View<const TextPart, 1> part_view{parts.data(), {count}};
    model->extend(on, {.token = token_view, .part = part_view}, {logits.data(), {count, kVocab}});
    return logits;
  }
};

// Prompts of different lengths, single tokens, and long parts after a cached beginning; the third
// text begins in a later call.
const std::vector<std::vector<TextPart>> kCalls = {
    {{0, 0, 23}, {1, 0, 7}},   {{1, 7, 1}, {0, 23, 1}},
    {{2, 0, 38}, {0, 24, 1}},  {{0, 25, 1}, {1, 8, 32}, {2, 38, 1}},
    {{2, 39, 1}, {0, 26, 14}},
};

double nats_of(const float* logits, int32_t target) {
  double sum = 0;
  for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(double(logits[v]) - double(logits[target]));
  return std::log(sum);
}

template <typename T>
void require_like_evaluate(const std::string& kind, Recipe recipe, gpu::Context* gpu) {
  INFO(kind << " " << recipe_name(recipe) << (gpu ? ", CUDA kernels" : ""));
  ModelFixture whole(config_of(kind), recipe, kTexts, kSequence);
  std::vector<float> want(size_t(kTexts * kSequence));
  whole.model->evaluate(whole.on, whole.all(), {want.data(), {int64_t(want.size())}});
  Fixture f(kind, recipe, gpu ? 1 : 2, gpu);
  for (const auto& parts : kCalls) {
    const std::vector<float> logits = f.extended(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto row = size_t(parts[i].text * kSequence + parts[i].position + parts[i].tokens - 1);
      const double got = nats_of(&logits[i * kVocab], f.target[row]);
      INFO("text " << parts[i].text << " to position " << row % kSequence << ": " << got
                   << ", wanted " << want[row]);
      REQUIRE(std::abs(got - double(want[row])) <= tol::two_backends<T>(want[row]));
    }
  }
}

}  // namespace

TEST_CASE("texts extended with a cache predict what whole sequences do") {
  for (const std::string kind : {"dense", "moe"}) {
    require_like_evaluate<float>(kind, Recipe::kFp32, nullptr);
    require_like_evaluate<bf16>(kind, Recipe::kBf16, nullptr);
  }
}

TEST_CASE("texts extended by the CUDA kernels predict what whole sequences do on the CPU") {
  simt::set_host_access(simt::HostAccess::kForbidden);
  for (const std::string kind : {"dense", "moe"}) {
    gpu::Context context = simt::make_context();
    require_like_evaluate<float>(kind, Recipe::kFp32, &context);
    require_like_evaluate<bf16>(kind, Recipe::kBf16, &context);
  }
  simt::set_host_access(simt::HostAccess::kAllowed);
}

TEST_CASE("an extended text does not depend on threads, other texts or old cache contents") {
  for (const std::string kind : {"dense", "moe"}) {
    Fixture one(kind, Recipe::kFp32, 1), three(kind, Recipe::kFp32, 3), alone(kind, Recipe::kFp32);
    // The cache row was used by another text before.
    alone.extended({{1, 0, 40}});
    for (const auto& parts : kCalls) {
      const std::vector<float> beside = one.extended(parts);
      REQUIRE(three.extended(parts) == beside);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].text != 1) continue;
        const std::vector<float> got = alone.extended({parts[i]});
        REQUIRE(std::equal(got.begin(), got.end(), beside.begin() + int64_t(i) * kVocab));
      }
    }
  }
}

}  // namespace assay::test_extend
