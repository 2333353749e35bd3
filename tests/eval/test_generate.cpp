// Generation with a KV cache against full recomputation.
#include <algorithm>
#include <cmath>

#include "eval/generate.h"
#include "tests/catch.h"
#include "tests/model/model_fixture.h"
#include "tests/tolerance.h"

namespace assay::test_generate {

namespace {

constexpr int64_t kContext = 320, kVocab = 256, kPrompts = 20, kTokens = 256;

Config config_of(const std::string& kind) {
  Config c = small_config(kVocab);
  if (kind == "dense") return c;
  c.model.kv_heads = 1;
  c.model.qk_norm = true;
  c.model.moe = six_experts();
  return c;
}

// A model with random weights and room for `texts` texts of at most `positions`.
struct Writer {
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  Exec on;
  Generator generator;

  Writer(const Config& c, Recipe recipe, const GeneratorConfig& config, int threads = 1)
      : generator(config) {
    const int64_t texts = config.rows / config.positions;
    model = make_decoder(c.model, recipe, {.micro_batch = texts, .sequence = config.positions});
    on.threads = threads;
    model->plan(plan);
    generator.plan(plan, *model, c.model.vocab_size);
    plan.add(Section::kScratch, "workspace", on.workspace, {model->workspace_bytes()});
    plan.allocate();
    model->bind(on);
    model->initialise(on, 1);
    model->refresh_weights(on);
  }
  std::vector<GeneratedText> run(const std::vector<std::vector<int32_t>>& prompts) {
    return generator.run(on, *model, prompts, [](size_t, int32_t) {});
  }
};

GeneratorConfig config_with(int64_t texts) {
  return {.texts = texts,
          .positions = kContext,
          .rows = kPrompts * kContext,
          .vocab = kVocab,
          .tokens = kTokens,
          .sampling = {.temperature = 0}};
}

// Prompt i has 3 + 3 i random tokens.
std::vector<std::vector<int32_t>> prompts_of(int64_t count) {
  RandomSequence random({5, stream_id("prompts"), 0});
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(count));
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t t = 0; t < 3 + 3 * i; ++t) prompts[i].push_back(int32_t(random.below(kVocab)));
  }
  return prompts;
}

// The logits after each text, from one forward pass over the whole text.
std::vector<float> whole_logits(Writer& w, const std::vector<std::vector<int32_t>>& texts) {
  std::vector<int32_t> token;
  std::vector<TextPart> part;
  for (size_t i = 0; i < texts.size(); ++i) {
    token.insert(token.end(), texts[i].begin(), texts[i].end());
    part.push_back({.text = int64_t(i), .tokens = int64_t(texts[i].size())});
  }
  const auto count = static_cast<int64_t>(texts.size());
  std::vector<float> logits(size_t(count * kVocab));
  const View<const int32_t, 1> token_view{token.data(), {int64_t(token.size())}};
  const View<const TextPart, 1> part_view{part.data(), {count}};
  w.model->extend(w.on, {.token = token_view, .part = part_view}, {logits.data(), {count, kVocab}});
  return logits;
}

// Requires that each token after the prompt is the most likely one by Model::score, which uses no
// cache.
void require_most_likely(Writer& w, const std::vector<int32_t>& text, size_t prompt_tokens) {
  const auto n = static_cast<int64_t>(text.size()) - 1;
  std::vector<int32_t> position, row, target;
  for (int64_t t = 0; t < n; ++t) position.push_back(int32_t(t));
  for (size_t t = prompt_tokens; t < text.size(); ++t) {
    row.push_back(int32_t(t) - 1);
    target.push_back(text[t]);
  }
  const auto asked = static_cast<int64_t>(row.size());
  const AttentionSegment segment{0, n, 0, 0};
  std::vector<float> nats(row.size());
  std::vector<uint8_t> likely(row.size());
  w.model->score(w.on,
                 {.token = {text.data(), {n}},
                  .position = {position.data(), {n}},
                  .segment = {&segment, {1}},
                  .row = {row.data(), {asked}},
                  .target = {target.data(), {asked}}},
                 {nats.data(), {asked}}, {likely.data(), {asked}});
  REQUIRE(std::count(likely.begin(), likely.end(), 1) == asked);
}

// Compares with a second model that recomputes the whole text for every token. A third model
// extends its cache token by token, which exposes the cached logits.
void require_like_recomputation(const std::string& kind) {
  INFO(kind);
  const auto prompts = prompts_of(kPrompts);
  Writer with_cache(config_of(kind), Recipe::kFp32, config_with(kPrompts));
  Writer whole(config_of(kind), Recipe::kFp32, config_with(kPrompts));
  Writer stepping(config_of(kind), Recipe::kFp32, config_with(kPrompts));
  const std::vector<GeneratedText> written = with_cache.run(prompts);
  std::vector<std::vector<int32_t>> texts = prompts;
  double used = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<float> want = whole_logits(whole, texts);
    std::vector<float> got(want.size());
    if (t == 0) {
      got = whole_logits(stepping, texts);
    } else {
      std::vector<int32_t> token;
      std::vector<TextPart> part;
      for (size_t i = 0; i < texts.size(); ++i) {
        token.push_back(texts[i].back());
        part.push_back({.text = int64_t(i), .position = int64_t(texts[i].size()) - 1, .tokens = 1});
      }
      const View<const int32_t, 1> token_view{token.data(), {kPrompts}};
      const View<const TextPart, 1> part_view{part.data(), {kPrompts}};
      stepping.model->extend(stepping.on, {.token = token_view, .part = part_view},
                             {got.data(), {kPrompts, kVocab}});
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const float* const z = &want[i * kVocab];
      double largest = 0;
      for (int64_t v = 0; v < kVocab; ++v) largest = std::max(largest, std::abs(double(z[v])));
      const double tolerance = tol::two_backends<float>(largest);
      for (int64_t v = 0; v < kVocab; ++v) {
        const double error = std::abs(double(got[i * kVocab + size_t(v)]) - double(z[v]));
        used = std::isnan(error) ? INFINITY : std::max(used, error / tolerance);
      }
      const auto next = int32_t(std::max_element(z, z + kVocab) - z);
      INFO("prompt " << i << ", token " << t);
      REQUIRE(written[i].tokens[size_t(t)] == next);
      texts[i].push_back(next);
    }
  }
  INFO("logits use " << used << " of their tolerance");
  REQUIRE(used <= 1);
  for (size_t i = 0; i < texts.size(); ++i) require_most_likely(whole, texts[i], prompts[i].size());
}

}  // namespace

TEST_CASE(
    "a dense model generates the same with a cache as by recomputing the whole text per token") {
  require_like_recomputation("dense");
}

TEST_CASE(
    "an MoE model with QK-norm and grouped queries generates the same with and without cache") {
  require_like_recomputation("moe");
}

TEST_CASE("a generated text depends neither on other texts nor on how many run at once") {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    GeneratorConfig config{.texts = 7,
                           .positions = 64,
                           .rows = 7 * 64,
                           .vocab = 200,
                           .tokens = 30,
                           .sampling = {.temperature = 1.3, .top_k = 40, .top_p = 0.95, .seed = 3}};
    const auto prompts = prompts_of(7);
    Writer all(config_of("moe"), recipe, config, 2);
    const auto want = all.run(prompts);
    REQUIRE(all.generator.work().prompt_tokens == 3 * 7 + 3 * 21);
    REQUIRE(all.generator.work().decoded_tokens == 29 * 7);
    for (const int64_t texts : {1, 2, 3}) {
      config.texts = texts;
      config.rows = 64 * texts;
      Writer few(config_of("moe"), recipe, config);
      const auto got = few.run(prompts);
      for (size_t i = 0; i < prompts.size(); ++i) {
        INFO("prompt " << i << ", " << texts << " at once");
        REQUIRE(got[i].tokens == want[i].tokens);
        REQUIRE(want[i].tokens.size() == 30);
        REQUIRE(*std::max_element(want[i].tokens.begin(), want[i].tokens.end()) < 200);
      }
    }
  }
}

TEST_CASE("a prompt that runs alone under its number has the text it has among others") {
  const GeneratorConfig config{.texts = 3,
                               .positions = 64,
                               .rows = 3 * 64,
                               .vocab = 200,
                               .tokens = 20,
                               .sampling = {.temperature = 1.3, .seed = 3}};
  const auto prompts = prompts_of(3);
  Writer w(config_of("moe"), Recipe::kFp32, config);
  const auto want = w.run(prompts);
  const auto alone = [&](size_t i, const Generator::OnToken& on_token) {
    return w.generator.run(w.on, *w.model, {prompts[i]}, on_token, int64_t(i))[0].tokens;
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    // A text that was broken off leaves nothing behind.
    int left = 5;
    REQUIRE_THROWS_AS(alone(i,
                            [&](size_t, int32_t) {
                              if (--left == 0) throw UserError("stop", "");
                            }),
                      UserError);
    REQUIRE(alone(i, [](size_t, int32_t) {}) == want[i].tokens);
  }
}

TEST_CASE("a text ends at its end token, at the token limit, or when the context is full") {
  GeneratorConfig config{.texts = 2,
                         .positions = 40,
                         .rows = 80,
                         .vocab = kVocab,
                         .tokens = 30,
                         .sampling = {.temperature = 1.0, .seed = 5}};
  const auto all = prompts_of(14);
  // Prompts of 3, 24, 39 and 40 tokens in a context of 40: the last token drawn needs no position.
  std::vector<std::vector<int32_t>> prompts{all[0], all[7], all[12], all[13]};
  prompts[3].resize(40);
  std::vector<std::vector<int32_t>> heard(prompts.size());
  const auto written = [&] {
    Writer w(config_of("dense"), Recipe::kFp32, config);
    heard.assign(prompts.size(), {});
    return w.generator.run(w.on, *w.model, prompts,
                           [&](size_t i, int32_t token) { heard[i].push_back(token); });
  };
  const auto texts = written();
  const std::vector<size_t> lengths{30, 17, 2, 1};
  for (size_t i = 0; i < texts.size(); ++i) {
    REQUIRE(texts[i].tokens.size() == lengths[i]);
    REQUIRE(texts[i].tokens == heard[i]);
    REQUIRE(std::string(text_end_name(texts[i].end)) == (i == 0 ? "tokens" : "context"));
  }
  // With its 12th token as the end token, the first text ends at that token's first occurrence.
  config.end = texts[0].tokens[11];
  const auto first = std::find(texts[0].tokens.begin(), texts[0].tokens.end(), config.end);
  const auto shorter = written();
  REQUIRE(std::string(text_end_name(shorter[0].end)) == "end_of_text");
  REQUIRE(shorter[0].tokens == std::vector<int32_t>(texts[0].tokens.begin(), first));
}

TEST_CASE("ids that the tokenizer does not use are not drawn, greedy or not") {
  for (const double temperature : {0.0, 1.5}) {
    GeneratorConfig config{.texts = 2,
                           .positions = 40,
                           .rows = 80,
                           .vocab = kVocab,
                           .tokens = 20,
                           .sampling = {.temperature = temperature, .seed = 3}};
    const auto prompts = prompts_of(2);
    const auto drawn = Writer(config_of("dense"), Recipe::kFp32, config).run(prompts);
    config.unused = drawn[0].tokens;
    for (const GeneratedText& text :
         Writer(config_of("dense"), Recipe::kFp32, config).run(prompts)) {
      REQUIRE(text.tokens.size() == 20);
      for (const int32_t id : drawn[0].tokens) {
        REQUIRE(std::count(text.tokens.begin(), text.tokens.end(), id) == 0);
      }
    }
  }
}

TEST_CASE("non-finite logits are refused with prompt and position") {
  GeneratorConfig config{
      .texts = 2, .positions = 40, .rows = 80, .vocab = kVocab, .tokens = 5, .sampling = {}};
  Writer w(config_of("dense"), Recipe::kFp32, config);
  for (const TensorRef& t : w.model->tensors()) {
    if (t.name == "head.weight") static_cast<float*>(t.data)[17 * 64] = NAN;
  }
  w.model->refresh_weights(w.on);
  const std::vector<std::vector<int32_t>> prompts{prompts_of(2)[1]};
  for (const int64_t first : {0, 3}) {  // the number of a text in its draws names it here too
    try {
      w.generator.run(
          w.on, *w.model, prompts, [](size_t, int32_t) {}, first);
      FAIL("not refused");
    } catch (const UserError& error) {
      REQUIRE(error.what() == "prompt " + std::to_string(first + 1) +
                                  ": the model's logit of token 17 at position 6 is nan");
    }
  }
}

}  // namespace assay::test_generate
