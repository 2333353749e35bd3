// Whole tasks, with scorers whose answers are known and with a real model scored in several ways.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "eval/core_run.h"
#include "models/decoder/decoder.h"
#include "tests/catch.h"

namespace assay::test_core_run {
namespace {

Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary.bytes.emplace_back(1, char(b));
  vocabulary.bytes.emplace_back(kEndOfText);
  vocabulary.special = {256};
  return Tokenizer(std::move(vocabulary));
}

CoreTask task_of(CoreKind kind, int64_t shots) {
  CoreTask task;
  task.label = core_kind_name(kind);
  task.kind = kind;
  task.shots = shots;
  task.baseline_percent = kind == CoreKind::kLanguageModeling ? 0 : 50;
  return task;
}

// Every third row's correct option is the second; even rows continue with "yes".
std::vector<CoreRow> rows_of(CoreKind kind, int64_t n) {
  std::vector<CoreRow> rows;
  for (int64_t i = 0; i < n; ++i) {
    CoreRow row;
    row.context = "question " + std::to_string(i * i);
    row.options = {"left " + std::to_string(i), "right"};
    row.gold = i % 3 == 0 ? 1 : 0;
    if (kind != CoreKind::kMultipleChoice) row.continuation = i % 2 == 0 ? "yes" : "never";
    rows.push_back(row);
  }
  return rows;
}

// Returns the scores that a rule gives.
class Oracle final : public QuestionScorer {
 public:
  using Rule = std::function<std::vector<PromptScore>(const CoreQuestion&)>;
  explicit Oracle(Rule rule) : rule_(std::move(rule)) {}
  std::vector<std::vector<PromptScore>> score(std::span<const CoreQuestion> questions) override {
    std::vector<std::vector<PromptScore>> all;
    for (const CoreQuestion& q : questions) all.push_back(rule_(q));
    return all;
  }

 private:
  Rule rule_;
};

CoreTaskResult run(QuestionScorer& scorer, CoreKind kind, int64_t rows, int64_t shots = 2) {
  const CoreExamples examples(task_of(kind, shots), rows_of(kind, rows));
  return run_core_task(scorer, examples, byte_tokenizer(), {}, [](int64_t, const CoreWork&) {});
}

TEST_CASE("known preferences give the accuracies counted by hand") {
  Oracle first([](const CoreQuestion& q) {
    std::vector<PromptScore> s(q.prompts.size());
    for (size_t i = 0; i < s.size(); ++i) s[i].nats = double(i);
    return s;
  });
  Oracle second([](const CoreQuestion& q) {
    std::vector<PromptScore> s(q.prompts.size());
    for (size_t i = 0; i < s.size(); ++i) s[i].nats = -double(i);
    return s;
  });
  Oracle undecided(
      [](const CoreQuestion& q) { return std::vector<PromptScore>(q.prompts.size()); });
  for (const CoreKind kind : {CoreKind::kMultipleChoice, CoreKind::kSchema}) {
    // In 34 of 100 rows the second option is correct.
    REQUIRE(*run(first, kind, 100).accuracy() == Approx(0.66));
    REQUIRE(*run(second, kind, 100).accuracy() == Approx(0.34));
    REQUIRE(*run(second, kind, 100).centered() == Approx(-0.32));
    REQUIRE(*run(undecided, kind, 100).accuracy() == Approx(0.66));
  }
  // Exact if the continuation is " yes": half of the rows.
  Oracle yes([](const CoreQuestion& q) {
    const CorePrompt& p = q.prompts[0];
    return std::vector<PromptScore>{{.nats = 1, .exact = p.tokens.back() == 's'}};
  });
  REQUIRE(*run(yes, CoreKind::kLanguageModeling, 100).accuracy() == Approx(0.5));
}

TEST_CASE("rows without a finite score are counted as not scored") {
  Oracle sometimes([](const CoreQuestion& q) {
    const bool bad = q.prompts[0].tokens.size() % 2 == 0;
    return std::vector<PromptScore>(q.prompts.size(), {.nats = bad ? NAN : 1.0});
  });
  const CoreTaskResult result = run(sometimes, CoreKind::kMultipleChoice, 600);
  REQUIRE(result.scored() > 0);
  REQUIRE(!result.skipped.empty());
  REQUIRE(result.scored() + int64_t(result.skipped.size()) == 600);
  REQUIRE(result.skipped[0].second == "the model's scores are not finite");
}

TEST_CASE("prompts that lost their beginning are counted") {
  Oracle first([](const CoreQuestion& q) {
    return std::vector<PromptScore>(q.prompts.size(), {.nats = 1});
  });
  std::vector<CoreRow> rows = rows_of(CoreKind::kMultipleChoice, 20);
  for (size_t i = 0; i < rows.size(); i += 4) rows[i].options[0] += std::string(80, 'x');
  rows[1].options[0] = std::string(200, 'y');  // longer than the limit by itself: not scored
  const CoreExamples examples(task_of(CoreKind::kMultipleChoice, 0), rows);
  const auto result = [&](int64_t max_tokens, CorePart part = {}) {
    return run_core_task(first, examples, byte_tokenizer(),
                         {.max_tokens = max_tokens, .part = part}, [](int64_t, const CoreWork&) {});
  };
  REQUIRE(result(0).cut_prompts == 0);
  REQUIRE(result(128).cut_prompts == 0);
  REQUIRE(result(96).cut_prompts == 5);
  REQUIRE(result(96).skipped.size() == 1);
  CoreTaskResult both = result(96, {.index = 0, .count = 2});
  both.add_rows(result(96, {.index = 1, .count = 2}));
  REQUIRE(both.cut_prompts == 5);
  CoreTaskResult unknown;
  unknown.cut_prompts.reset();
  both.add_rows(unknown);
  REQUIRE(!both.cut_prompts);
}

// A small decoder with random weights.
struct SmallModel {
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  Exec on;
  static constexpr int64_t kRows = 512;

  explicit SmallModel(Recipe recipe = Recipe::kFp32, int threads = 2) {
    ModelConfig config;
    config.hidden = 32;
    config.layers = 2;
    config.heads = 1;
    config.ffn = 48;
    config.vocab_size = 257;
    model = make_decoder(config, recipe, {.micro_batch = 2, .sequence = kRows / 2});
    on.threads = threads;
    model->plan(plan);
    plan.add(Section::kScratch, "workspace", on.workspace, {model->workspace_bytes()});
    plan.allocate(nullptr);
    model->bind(on);
    model->initialise(on, 3);
    model->refresh_weights(on);
  }
};

// Scores are equal to the bit for any batching, sharing of beginnings, and threads.
void require_same_scores(Recipe recipe) {
  SmallModel small(recipe), other_threads(recipe, 3);
  const Tokenizer tokenizer = byte_tokenizer();
  Encoder encoder(tokenizer);
  for (const CoreKind kind :
       {CoreKind::kMultipleChoice, CoreKind::kSchema, CoreKind::kLanguageModeling}) {
    INFO(core_kind_name(kind) << " " << recipe_name(recipe));
    const CoreExamples examples(task_of(kind, 3), rows_of(kind, 30));
    std::vector<CoreQuestion> questions;
    int64_t alone_rows = 0;
    for (int64_t i = 0; i < examples.size(); ++i) {
      questions.push_back(examples.question(i, encoder, 256, 0));
      REQUIRE(questions.back().not_scored.empty());
      for (const CorePrompt& p : questions.back().prompts) alone_rows += p.end - 1;
    }
    ModelScorer packed(small.on, *small.model, {.batch_rows = SmallModel::kRows});
    ModelScorer smaller(other_threads.on, *other_threads.model, {.batch_rows = 300});
    ModelScorer alone(small.on, *small.model,
                      {.batch_rows = SmallModel::kRows, .way = ScorerConfig::Way::kPlainLoop});
    const auto a = packed.score(questions), b = alone.score(questions),
               c = smaller.score(questions);
    for (size_t q = 0; q < questions.size(); ++q) {
      for (size_t p = 0; p < a[q].size(); ++p) {
        REQUIRE(a[q][p].nats == b[q][p].nats);
        REQUIRE(a[q][p].exact == b[q][p].exact);
        REQUIRE(a[q][p].nats == c[q][p].nats);
      }
    }
    REQUIRE(alone.rows_computed() == alone_rows);
    if (kind == CoreKind::kMultipleChoice) REQUIRE(packed.rows_computed() * 17 < alone_rows * 10);
  }
}

TEST_CASE("shared beginnings and packing change no score") {
  require_same_scores(Recipe::kFp32);
  require_same_scores(Recipe::kBf16);
}

TEST_CASE("a question too long for one batch is scored prompt by prompt") {
  SmallModel small;
  const Tokenizer tokenizer = byte_tokenizer();
  Encoder encoder(tokenizer);
  CoreRow row;
  row.context = "q";
  row.options = {std::string(200, 'a'), std::string(190, 'b'), std::string(180, 'c')};
  const CoreExamples examples(task_of(CoreKind::kMultipleChoice, 0), {row});
  const CoreQuestion question = examples.question(0, encoder, 256, 256);
  ModelScorer scorer(small.on, *small.model, {.batch_rows = SmallModel::kRows});
  const auto scores = scorer.score({&question, 1});
  for (const PromptScore& s : scores[0]) REQUIRE(std::isfinite(s.nats));
  // The tokens are <|endoftext|>, "q", " " and the choice; the last one predicts nothing.
  REQUIRE(scorer.rows_computed() == 202 + 192 + 182);
}

// Random edge cases of text: empty, only spaces, long, any bytes.
std::string odd_text(RandomSequence& random) {
  const uint32_t kind = random.below(5);
  std::string text(kind == 0 ? 0 : random.below(kind == 1 ? 400 : 12), ' ');
  if (kind == 2) return text;
  for (char& c : text) c = char(random.below(256));
  return text;
}

CoreRow odd_row(RandomSequence& random) {
  CoreRow row;
  row.context = odd_text(random);
  row.continuation = odd_text(random);
  for (uint32_t n = 1 + random.below(4); n > 0; --n) row.options.push_back(odd_text(random));
  row.gold = random.below(uint32_t(row.options.size()));
  return row;
}

TEST_CASE("every row is scored, or counted with a reason") {
  SmallModel small;
  RandomSequence random({.seed = 3, .stream = stream_id("core.odd_rows")});
  ModelScorer scorer(small.on, *small.model, {.batch_rows = SmallModel::kRows});
  for (int trial = 0; trial < 60; ++trial) {
    for (const CoreKind kind :
         {CoreKind::kMultipleChoice, CoreKind::kSchema, CoreKind::kLanguageModeling}) {
      std::vector<CoreRow> rows;
      for (int i = 0; i < 8; ++i) rows.push_back(odd_row(random));
      const CoreExamples examples(task_of(kind, random.below(3)), rows);
      const int64_t max_tokens = 2 + random.below(255);
      INFO(core_kind_name(kind) << " trial " << trial << ", at most " << max_tokens << " tokens");
      const CoreTaskResult result =
          run_core_task(scorer, examples, byte_tokenizer(), {.max_tokens = max_tokens},
                        [](int64_t, const CoreWork&) {});
      REQUIRE(result.answers.size() == rows.size());
      REQUIRE(result.scored() + int64_t(result.skipped.size()) == int64_t(rows.size()));
      for (const auto& [line, why] : result.skipped) {
        REQUIRE((line >= 0 && line < int64_t(rows.size()) && !why.empty()));
      }
    }
  }
}

// With NaN in the embedding of 'z' or in the head, rows that read it are not scored and others do
// not change.
TEST_CASE("non-finite weights affect only the rows that read them") {
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    SmallModel sound(recipe), spoiled(recipe), dead(recipe);
    const auto poison = [](SmallModel& m, const std::string& name, int64_t begin, int64_t count) {
      for (ParameterRef& p : m.model->parameters()) {
        if (p.spec->name != name) continue;
        std::fill(p.master.data + begin, p.master.data + begin + count, NAN);
      }
      m.model->refresh_weights(m.on);
    };
    poison(spoiled, "embed.weight", 'z' * 32, 32);
    poison(dead, "head.weight", 0, 1);
    for (const CoreKind kind :
         {CoreKind::kMultipleChoice, CoreKind::kSchema, CoreKind::kLanguageModeling}) {
      INFO(core_kind_name(kind) << " " << recipe_name(recipe));
      std::vector<CoreRow> rows = rows_of(kind, 24);
      for (size_t i = 0; i < rows.size(); i += 3) rows[i].context += " z ";
      for (size_t i = 0; i < rows.size(); i += 3) rows[i].options[0] += " z ";
      const CoreExamples examples(task_of(kind, 0), rows);
      const auto scored = [&](SmallModel& m) {
        ModelScorer scorer(m.on, *m.model, {.batch_rows = SmallModel::kRows});
        return run_core_task(scorer, examples, byte_tokenizer(), {},
                             [](int64_t, const CoreWork&) {});
      };
      const CoreTaskResult want = scored(sound), got = scored(spoiled), none = scored(dead);
      REQUIRE(want.skipped.empty());
      REQUIRE(got.skipped.size() == 8);
      for (const auto& [line, why] : got.skipped) {
        REQUIRE((line % 3 == 0 && why == "the model's scores are not finite"));
      }
      for (size_t i = 0; i < got.answers.size(); ++i) {
        if (got.answers[i] == CoreTaskResult::kNotScored) continue;
        REQUIRE(got.answers[i] == want.answers[i]);
      }
      REQUIRE((none.scored() == 0 && none.skipped.size() == rows.size()));
      REQUIRE(!none.accuracy());
    }
  }
}

TEST_CASE("the parts of a task together give the answers of the whole") {
  Oracle oracle([](const CoreQuestion& q) {
    std::vector<PromptScore> s(q.prompts.size(), {.nats = 1});
    s[q.prompts[0].tokens.size() % s.size()].nats = q.prompts[0].tokens.size() % 5 == 0 ? NAN : 0;
    return s;
  });
  const CoreExamples examples(task_of(CoreKind::kMultipleChoice, 2),
                              rows_of(CoreKind::kMultipleChoice, 700));
  const auto answers = [&](CorePart part) {
    return run_core_task(oracle, examples, byte_tokenizer(), {.part = part},
                         [](int64_t, const CoreWork&) {})
        .answers;
  };
  const std::string whole = answers({});
  REQUIRE(whole.size() == 700);
  REQUIRE(whole.find('-') != std::string::npos);
  std::string together(700, '?');
  for (int64_t index = 0; index < 3; ++index) {
    const std::string part = answers({.index = index, .count = 3});
    for (size_t i = 0; i < part.size(); ++i) together[i * 3 + size_t(index)] = part[i];
  }
  REQUIRE(together == whole);
  REQUIRE(answers({.index = 700, .count = 1000}).empty());

  // Blocks of 256 rows: 0, 1 and the first 188 of 2; with two parts the last has the middle one.
  const auto blocks = [&](int64_t index, int64_t count) {
    return answers({.index = index, .count = count, .block = kCoreBlock});
  };
  REQUIRE(blocks(0, 3) == whole.substr(0, 256));
  REQUIRE(blocks(1, 2) == whole.substr(256, 256));
  REQUIRE(blocks(0, 2) == whole.substr(0, 256) + whole.substr(512));
  REQUIRE(blocks(3, 4).empty());
}

}  // namespace
}  // namespace assay::test_core_run
