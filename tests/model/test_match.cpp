#include <cstdlib>

#include "base/check.h"
#include "models/audit/dense_twin.h"
#include "tests/catch.h"

namespace assay::test_match {

namespace {

Config candidate() {
  Config c;
  c.model.hidden = 320, c.model.layers = 8, c.model.heads = 5, c.model.vocab_size = 8192;
  c.model.tie_embeddings = true;
  MoeConfig& m = c.model.moe.emplace();
  m.experts = 4, m.top_k = 2, m.expert_ffn = 512;
  return c;
}

int64_t dense_parameters(Config c, int64_t ffn) {
  c.model.moe.reset();
  c.model.ffn = ffn;
  return count_from_table(c.model).total();
}

}  // namespace

TEST_CASE("dense twins of a 4-expert model differ by its router") {
  const Config c = candidate();
  REQUIRE(audit(c).total == 21642560);
  REQUIRE(audit(c).active == 13778240);
  const Twin active = dense_twin(c, "active", 128);
  REQUIRE(active.ffn == 1024);
  REQUIRE(active.parameters == 13768000);
  REQUIRE(active.residual == -10240);
  REQUIRE(active.residual_percent == Approx(-0.0743201));
  const Twin total = dense_twin(c, "total", 128);
  REQUIRE(total.ffn == 2048);
  REQUIRE(total.parameters == 21632320);
  REQUIRE(total.residual == -10240);
}

TEST_CASE("no other width is closer") {
  Config c = candidate();
  for (const int64_t shared : {0, 1})
    for (const int64_t expert_ffn : {1, 37, 500})
      for (const char* kind : {"active", "total"})
        for (const int64_t multiple : {1, 128}) {
          c.model.moe->shared = shared, c.model.moe->expert_ffn = expert_ffn;
          const Twin twin = dense_twin(c, kind, multiple);
          INFO(kind << " " << expert_ffn << " multiple " << multiple << " ffn " << twin.ffn);
          REQUIRE(twin.ffn % multiple == 0);
          REQUIRE(twin.parameters == dense_parameters(c, twin.ffn));
          REQUIRE(twin.residual == twin.parameters - twin.target);
          const auto distance = [&](int64_t ffn) {
            return std::abs(dense_parameters(c, ffn) - twin.target);
          };
          REQUIRE(distance(twin.ffn + multiple) >= distance(twin.ffn));
          if (twin.ffn > multiple) REQUIRE(distance(twin.ffn - multiple) >= distance(twin.ffn));
        }
}

TEST_CASE("a dense model is its own twin") {
  Config c = candidate();
  c.model.moe.reset();
  c.model.ffn = 777;
  REQUIRE(dense_twin(c, "total").ffn == 777);
  REQUIRE(dense_twin(c, "active").residual == 0);
  REQUIRE_THROWS_AS(dense_twin(c, "match"), UserError);
}

}  // namespace assay::test_match
