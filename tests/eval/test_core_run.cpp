// Whole tasks with scorers whose answers are known, and a real model asked in two ways.
#include <cmath>

#include "eval/core_run.h"
#include "models/decoder.h"
#include "tests/catch.h"

namespace assay {
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

// Every third row's right option is the second; continuations end in "yes" for even rows.
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

// Prefers the option that a rule names.
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
  return run_core_task(scorer, examples, byte_tokenizer(), 0, [](int64_t, const CoreWork&) {});
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
    // 34 of 100 rows have the second option as the right one.
    REQUIRE(*run(first, kind, 100).accuracy() == Approx(0.66));
    REQUIRE(*run(second, kind, 100).accuracy() == Approx(0.34));
    REQUIRE(*run(second, kind, 100).centered() == Approx(-0.32));
    REQUIRE(*run(undecided, kind, 100).accuracy() == Approx(0.66));
  }
  // Exact where the continuation is " yes": half of the rows.
  Oracle yes([](const CoreQuestion& q) {
    const CorePrompt& p = q.prompts[0];
    return std::vector<PromptScore>{
        {.nats = 1, .exact = p.tokens.back() == 's'}
    };
  });
  REQUIRE(*run(yes, CoreKind::kLanguageModeling, 100).accuracy() == Approx(0.5));
}

TEST_CASE("rows without a finite score are counted, not failed") {
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

// To the bit, whatever shares a batch, a beginning, or the threads.
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
                      {.batch_rows = SmallModel::kRows, .sharing = ScorerConfig::Sharing::kOff});
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

TEST_CASE("sharing beginnings and packing change no score") {
  require_same_scores(Recipe::kFp32);
  require_same_scores(Recipe::kBf16);
}

TEST_CASE("a question too long to lie together is scored prompt by prompt") {
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
  // Tokens: <|endoftext|>, "q", " ", the choice. The last predicts nothing.
  REQUIRE(scorer.rows_computed() == 202 + 192 + 182);
}

}  // namespace
}  // namespace assay
