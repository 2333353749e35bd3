// Model::score against Model::evaluate: concatenated texts with shared beginnings stored once.
#include <cmath>

#include "cuda/context.h"
#include "cuda/simt/context.h"
#include "models/decoder/scored_rows.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/tolerance.h"

namespace assay::test_score {

namespace {

Config config_of(const std::string& kind) {
  Config c = small_config(70);
  c.model.kv_heads = 1;
  c.model.qk_norm = kind == "dense";
  c.model.tie_embeddings = kind == "dense";
  if (kind == "moe") {
    c.model.moe = six_experts();
    c.model.moe->router.aux = RouterAux::kGates;
    c.model.moe->router.aux_scope = AuxScope::kSequence;
  }
  return c;
}

// Builds a TextBatch: rows, positions, segments and scored rows.
struct Texts {
  std::vector<int32_t> token, position, row, target;
  std::vector<AttentionSegment> segment;

  // Adds a segment of tokens[from, to) at those positions, with segment `after` as its prefix (-1:
  // none).
  int add(const int32_t* tokens, int64_t from, int64_t to, int after = -1) {
    const int64_t begin = int64_t(token.size());
    for (int64_t t = from; t < to; ++t) {
      token.push_back(tokens[t]);
      position.push_back(int32_t(t));
    }
    AttentionSegment s{begin, begin + to - from, 0, 0};
    if (after >= 0) {
      s.prefix_begin = segment[size_t(after)].begin;
      s.prefix_end = segment[size_t(after)].end;
    }
    segment.push_back(s);
    return int(segment.size()) - 1;
  }
  void ask(int64_t r, int32_t t) {
    row.push_back(int32_t(r));
    target.push_back(t);
  }
  TextBatch batch() const {
    return {.token = {token.data(), {int64_t(token.size())}},
            .position = {position.data(), {int64_t(position.size())}},
            .segment = {segment.data(), {int64_t(segment.size())}},
            .row = {row.data(), {int64_t(row.size())}},
            .target = {target.data(), {int64_t(target.size())}}};
  }
};

struct Scores {
  std::vector<float> nats;
  std::vector<uint8_t> likely;
};

Scores scored(ModelFixture& f, const Texts& texts,
              TextBatch::LastBlock last_block = TextBatch::LastBlock::kAskedRows) {
  Scores s{std::vector<float>(texts.row.size()), std::vector<uint8_t>(texts.row.size())};
  TextBatch batch = texts.batch();
  batch.last_block = last_block;
  f.model->score(f.on, batch, {s.nats.data(), {int64_t(s.nats.size())}},
                 {s.likely.data(), {int64_t(s.likely.size())}});
  return s;
}

constexpr int64_t kSequence = 40, kShared = 23;

// Sequence 0 is cut after its first 23 tokens, which sequence 1 (made to begin alike) shares as its
// prefix; sequence 2 follows whole. Every target of all three is scored.
Texts cut_up(const ModelFixture& f) {
  const int32_t* all = f.token.data();
  Texts texts;
  const int shared = texts.add(all, 0, kShared);
  texts.add(all, kShared, kSequence, shared);
  texts.add(all + kSequence, kShared, kSequence, shared);
  texts.add(all + 2 * kSequence, 0, kSequence);
  for (int64_t t = 0; t < kSequence; ++t) texts.ask(t, f.target[size_t(t)]);
  for (int64_t t = 0; t < kSequence; ++t) {
    texts.ask(t < kShared ? t : t + kSequence - kShared, f.target[size_t(kSequence + t)]);
  }
  for (int64_t t = 0; t < kSequence; ++t) {
    texts.ask(2 * kSequence - kShared + t, f.target[size_t(2 * kSequence + t)]);
  }
  return texts;
}

void begin_alike(ModelFixture& f) {
  for (int64_t t = 0; t < kShared; ++t) {
    f.token[size_t(kSequence + t)] = f.token[size_t(t)];
    f.target[size_t(kSequence + t)] = f.target[size_t(t)];
  }
  f.target[size_t(kSequence + kShared - 1)] = f.token[size_t(kSequence + kShared)];
}

template <typename T>
void require_near_all(const std::vector<float>& got, const float* want) {
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("question " << i << ": " << got[i] << ", wanted " << want[i]);
    REQUIRE(std::abs(double(got[i]) - double(want[i])) <= tol::two_backends<T>(want[i]));
  }
}

// On the CPU a row's attention is summed in the same order however its text is cut, so scores are
// equal to the bit.
void require_like_evaluate(const std::string& kind, Recipe recipe) {
  INFO(kind << " " << recipe_name(recipe));
  ModelFixture f(config_of(kind), recipe, 3, kSequence);
  begin_alike(f);
  std::vector<float> want(size_t(3 * kSequence));
  f.model->evaluate(f.on, f.all(), {want.data(), {int64_t(want.size())}});
  REQUIRE(scored(f, cut_up(f)).nats == want);
}

// The texts of cut_up with only a few scored rows: of the shared prefix only the last, and one row
// twice.
Texts few_asked(const ModelFixture& f) {
  Texts texts = cut_up(f);
  texts.row.clear();
  texts.target.clear();
  const auto end_of = [&](size_t s) { return texts.segment[s].end; };
  texts.ask(end_of(3) - 1, 5);
  texts.ask(end_of(0) - 1, 7);
  texts.ask(end_of(3) - 1, 6);
  texts.ask(end_of(1) - 4, 0);
  texts.ask(end_of(1) - 2, 69);
  return texts;
}

}  // namespace

TEST_CASE("shared beginnings and concatenated texts score as whole sequences do") {
  for (const std::string kind : {"dense", "moe"}) {
    require_like_evaluate(kind, Recipe::kFp32);
    require_like_evaluate(kind, Recipe::kBf16);
  }
}

TEST_CASE("rows that are not scored need only keys and values in the last block") {
  for (const std::string kind : {"dense", "moe"}) {
    for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
      INFO(kind << " " << recipe_name(recipe));
      ModelFixture f(config_of(kind), recipe, 3, kSequence);
      const Texts texts = few_asked(f);
      const Scores few = scored(f, texts), all = scored(f, texts, TextBatch::LastBlock::kAllRows);
      REQUIRE(few.nats == all.nats);
      REQUIRE(few.likely == all.likely);
    }
  }
}

TEST_CASE("scored rows map to the kept rows") {
  ModelFixture f(config_of("moe"), Recipe::kFp32, 3, kSequence);
  const Texts texts = few_asked(f);
  const ScoredRows asked(texts.batch());
  const int32_t shared = kShared - 1, own = kSequence, last = int32_t(texts.token.size()) - 1;
  REQUIRE(asked.kept == std::vector<int32_t>{shared, own - 4, own - 2, last});
  REQUIRE(asked.row == std::vector<int32_t>{3, 0, 3, 1, 2});
  // query_begin is the first kept row of each segment, or the segment's end if none is kept.
  REQUIRE(asked.segment[0].query_begin == shared);
  REQUIRE(asked.segment[1].query_begin == own - 4);
  REQUIRE(asked.segment[2].query_begin == texts.segment[2].end);
  REQUIRE(asked.segment[3].query_begin == last);
  REQUIRE(ScoredRows(cut_up(f).batch()).kept.empty());
}

TEST_CASE("scores do not depend on the number of threads or on other texts") {
  ModelFixture one(config_of("moe"), Recipe::kFp32, 3, kSequence, 1);
  ModelFixture three(config_of("moe"), Recipe::kFp32, 3, kSequence, 3);
  const Texts all = cut_up(one);
  const Scores a = scored(one, all), b = scored(three, all);
  REQUIRE(a.nats == b.nats);
  REQUIRE(a.likely == b.likely);
  Texts alone;
  alone.add(one.token.data() + 2 * kSequence, 0, kSequence);
  for (int64_t t = 0; t < kSequence; ++t) alone.ask(t, one.target[size_t(2 * kSequence + t)]);
  const Scores c = scored(one, alone);
  REQUIRE(std::equal(c.nats.begin(), c.nats.end(), a.nats.begin() + 2 * kSequence));
}

TEST_CASE("over all next tokens, probabilities sum to 1 and exactly one is the most likely") {
  ModelFixture f(config_of("moe"), Recipe::kBf16, 3, kSequence);
  Texts texts;
  texts.add(f.token.data(), 0, 9);
  for (int32_t v = 0; v < 70; ++v) texts.ask(8, v);
  const Scores s = scored(f, texts);
  double sum = 0;
  size_t best = 0;
  for (size_t v = 0; v < s.nats.size(); ++v) {
    sum += std::exp(-double(s.nats[v]));
    if (s.nats[v] < s.nats[best]) best = v;
  }
  REQUIRE(std::abs(sum - 1) <= tol::two_backends<float>(1));
  for (size_t v = 0; v < s.likely.size(); ++v) REQUIRE(s.likely[v] == (v == best ? 1 : 0));
}

TEST_CASE("the CUDA kernels score as the CPU does") {
  for (const std::string kind : {"dense", "moe"}) {
    gpu::Context context = simt::make_context();
    ModelFixture cpu(config_of(kind), Recipe::kBf16, 3, kSequence);
    ModelFixture gpu(config_of(kind), Recipe::kBf16, 3, kSequence, 1, -1, &context);
    const Texts texts = cut_up(cpu);
    const Scores want = scored(cpu, texts), got = scored(gpu, texts);
    require_near_all<bf16>(got.nats, want.nats.data());
    const Texts few = few_asked(cpu);
    const Scores want_few = scored(cpu, few), got_few = scored(gpu, few);
    require_near_all<bf16>(got_few.nats, want_few.nats.data());
  }
}

}  // namespace assay::test_score
