// A training step allocates nothing, neither in our code nor in OpenMP. Allocations are counted by
// replacing this test program's allocator.
#include <malloc.h>

#include <atomic>
#include <cstdlib>

#include "tests/catch.h"
#include "tests/model/model_fixture.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> calls{0}, large_calls{0};

void count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  calls += 1;
  if (bytes >= 4096) large_calls += 1;
}

}  // namespace

extern "C" {
void* malloc(size_t n) {
  count(n);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  count(n * size);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  count(n);
  return __libc_realloc(p, n);
}
void* memalign(size_t align, size_t n) {
  count(n);
  return __libc_memalign(align, n);
}
void* aligned_alloc(size_t align, size_t n) {
  count(n);
  return __libc_memalign(align, n);
}
int posix_memalign(void** p, size_t align, size_t n) {
  count(n);
  *p = __libc_memalign(align, n);
  return *p == nullptr;
}
}

namespace assay::test_allocations {

namespace {

Config config_with(bool moe) {
  Config c = small_config();
  c.model.hidden = 128;
  c.model.heads = 4;
  c.model.ffn = 256;
  c.model.vocab_size = 1000;
  if (moe) {
    c.model.moe = MoeConfig{.experts = 8,
                            .top_k = 2,
                            .shared = 1,
                            .expert_ffn = 64,
                            .first_dense_layers = 0,
                            .router = {}};
    c.model.moe->router.bias_rate = 1e-3;
    c.model.moe->router.aux = RouterAux::kGates;
    c.model.moe->router.aux_alpha = 0.01;
  }
  return c;
}

}  // namespace

TEST_CASE("the counter counts") {
  calls = large_calls = 0;
  counting = true;
  void* volatile small = std::malloc(16);
  void* volatile large = std::malloc(1 << 20);
  counting = false;
  std::free(small);
  std::free(large);
  REQUIRE(calls == 2);
  REQUIRE(large_calls == 1);
}

TEST_CASE("a training step allocates nothing") {
  for (const bool moe : {false, true}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      Config config = config_with(moe);
      // One recipe of each model steps with Muon.
      if (moe == (recipe == Recipe::kBf16)) config.optimizer.kind = OptimizerKind::kMuon;
      ModelFixture f(config, recipe, 4, 64);
      for (int i = 0; i < 3; ++i) f.step(i);  // the first steps start threads
      const size_t before = mallinfo2().uordblks;
      calls = large_calls = 0;
      counting = true;
      for (int i = 3; i < 8; ++i) f.step(i, 1, Optimizer::Sample::kRatios);
      const GroupRatios ratios = f.optimizer->ratios();
      counting = false;
      const size_t after = mallinfo2().uordblks;
      INFO("moe " << moe << " recipe " << recipe_name(recipe) << ": " << calls << " allocations, "
                  << large_calls << " of 4 KiB or more, heap grew by " << int64_t(after - before));
      REQUIRE(large_calls == 0);
      REQUIRE(after <= before);
      REQUIRE(calls == 0);
      REQUIRE(ratios[size_t(Role::kEmbedding)].update > 0);
    }
  }
}

}  // namespace assay::test_allocations
