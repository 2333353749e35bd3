#include "eval/core_run.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace assay {

namespace {

constexpr int64_t kWorthSharing = 8;  // tokens

int64_t rows_of(const CorePrompt& prompt) {
  return prompt.end - 1;  // the last token predicts no scored token
}

// Length of the common prefix of all prompts, limited to the rows of each.
int64_t common_beginning(const std::vector<const CorePrompt*>& prompts) {
  int64_t shared = rows_of(*prompts[0]);
  for (const CorePrompt* p : prompts) {
    const auto limit = std::min(shared, rows_of(*p));
    const auto& first = prompts[0]->tokens;
    shared = std::mismatch(first.begin(), first.begin() + limit, p->tokens.begin()).first -
             first.begin();
  }
  return shared;
}

}  // namespace

ModelScorer::ModelScorer(Exec on, Model& model, const ScorerConfig& config)
    : on_(on), model_(model), config_(config) {}

int64_t ModelScorer::asked_of(const CorePrompt& prompt) const {
  return plain() ? rows_of(prompt) : prompt.end - prompt.begin;
}

ModelScorer::Group ModelScorer::make_group(const CoreQuestion& question,
                                           std::vector<PromptScore>& scores) const {
  Group group;
  for (size_t i = 0; i < question.prompts.size(); ++i) {
    const CorePrompt& prompt = question.prompts[i];
    group.prompts.push_back(&prompt);
    group.scores.push_back(&scores[i]);
    group.rows += rows_of(prompt);
    group.asked += asked_of(prompt);
  }
  if (!plain() && group.prompts.size() > 1) {
    const int64_t shared = common_beginning(group.prompts);
    if (shared >= kWorthSharing) {
      group.shared = shared;
      group.rows -= (int64_t(group.prompts.size()) - 1) * shared;
    }
  }
  return group;
}

void ModelScorer::add_rows(const CorePrompt& prompt, int64_t from, int64_t to,
                           const AttentionSegment& prefix) {
  const int64_t begin = int64_t(token_.size());
  for (int64_t t = from; t < to; ++t) {
    token_.push_back(prompt.tokens[size_t(t)]);
    position_.push_back(static_cast<int32_t>(t));
  }
  if (from < to) segment_.push_back({begin, begin + to - from, prefix.begin, prefix.end});
}

void ModelScorer::add(const Group& group) {
  const int64_t shared_begin = int64_t(token_.size());
  AttentionSegment shared = {};
  if (group.shared > 0) {
    add_rows(*group.prompts[0], 0, group.shared, {});
    shared = segment_.back();
  }
  for (size_t i = 0; i < group.prompts.size(); ++i) {
    const CorePrompt& prompt = *group.prompts[i];
    const int64_t own_begin = int64_t(token_.size());
    add_rows(prompt, group.shared, rows_of(prompt), shared);
    const int64_t first = plain() ? 1 : prompt.begin;
    asked_.push_back({group.scores[i], row_.size() + size_t(prompt.begin - first),
                      size_t(prompt.end - prompt.begin)});
    for (int64_t p = first; p < prompt.end; ++p) {
      const int64_t before = p - 1;  // predicts token p
      row_.push_back(static_cast<int32_t>(
          before < group.shared ? shared_begin + before : own_begin + before - group.shared));
      target_.push_back(prompt.tokens[size_t(p)]);
    }
  }
}

void ModelScorer::flush() {
  if (token_.empty()) return;
  const auto view = [](const auto& v) {
    using E = typename std::remove_cvref_t<decltype(v)>::value_type;
    return View<const E, 1>{v.data(), {int64_t(v.size())}};
  };
  nats_.resize(row_.size());
  likely_.resize(row_.size());
  model_.score(
      on_,
      {.token = view(token_),
       .position = view(position_),
       .segment = view(segment_),
       .row = view(row_),
       .target = view(target_),
       .last_block = plain() ? TextBatch::LastBlock::kAllRows : TextBatch::LastBlock::kAskedRows},
      {nats_.data(), {int64_t(nats_.size())}}, {likely_.data(), {int64_t(likely_.size())}});
  rows_computed_ += int64_t(token_.size());
  for (const Asked& asked : asked_) {
    double sum = 0;
    bool exact = true;
    for (size_t i = asked.first; i < asked.first + asked.count; ++i) {
      sum += double(nats_[i]);
      exact = exact && likely_[i] != 0;
    }
    *asked.score = {
        .nats = sum / double(asked.count), .exact = exact, .tokens = int64_t(asked.count)};
  }
  for (auto* list : {&token_, &position_, &row_, &target_}) list->clear();
  segment_.clear();
  asked_.clear();
}

std::vector<std::vector<PromptScore>> ModelScorer::score(std::span<const CoreQuestion> questions) {
  std::vector<std::vector<PromptScore>> scores;
  std::vector<Group> groups;
  for (const CoreQuestion& question : questions) scores.emplace_back(question.prompts.size());
  for (size_t q = 0; q < questions.size(); ++q) {
    Group whole = make_group(questions[q], scores[q]);
    const bool fits = whole.rows <= config_.batch_rows && whole.asked <= config_.batch_rows;
    if (fits && !plain()) {
      groups.push_back(std::move(whole));
      continue;
    }
    for (size_t i = 0; i < whole.prompts.size(); ++i) {
      const CorePrompt& prompt = *whole.prompts[i];
      CHECK(rows_of(prompt) <= config_.batch_rows, "a prompt of %ld rows, planned for %ld",
            long(rows_of(prompt)), long(config_.batch_rows));
      groups.push_back({.prompts = {&prompt},
                        .scores = {whole.scores[i]},
                        .rows = rows_of(prompt),
                        .asked = asked_of(prompt)});
    }
  }
  // Long groups first: the last ones of a batch are small, so threads finish together.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.rows > b.rows; });
  for (const Group& group : groups) {
    const bool full = int64_t(token_.size()) + group.rows > config_.batch_rows ||
                      int64_t(row_.size()) + group.asked > config_.batch_rows;
    if (full || plain()) flush();
    add(group);
  }
  flush();
  return scores;
}

CoreTaskResult unscored_task(const CoreExamples& examples) {
  const CoreTask& task = examples.task();
  CoreTaskResult result;
  result.label = task.label;
  result.kind = task.kind;
  result.shots = task.shots;
  result.rows = examples.size();
  result.baseline_percent = task.baseline_percent;
  return result;
}

void score_core_rows(QuestionScorer& scorer, const CoreExamples& examples, Encoder& encoder,
                     const CoreRows& rows, CoreTaskResult& result, CoreWork& work) {
  const CoreTask& task = examples.task();
  std::vector<CoreQuestion> questions;
  std::vector<std::string> not_scored;  // reason for each row; "" = scored
  for (int64_t i = rows.begin; i < rows.end; i += rows.step) {
    CoreQuestion question = examples.question(i, encoder, rows.bos, rows.max_tokens);
    not_scored.push_back(question.not_scored);
    if (!question.not_scored.empty()) continue;
    result.add_cut_prompts(question.cut_prompts);
    for (const CorePrompt& prompt : question.prompts) {
      work.prompts += 1;
      work.prompt_tokens += int64_t(prompt.tokens.size());
    }
    questions.push_back(std::move(question));
  }
  const auto scores = scorer.score(questions);
  size_t q = 0;
  for (size_t i = 0; i < not_scored.size(); ++i) {
    CoreRowScores& row = result.scores.emplace_back();
    row.line = examples.line(rows.begin + int64_t(i) * rows.step);
    row.not_scored = not_scored[i];
    std::optional<bool> right;
    if (row.not_scored.empty()) {
      right = is_right(task.kind, questions[q], scores[q]);
      row.gold = questions[q].gold;
      if (right) {
        row.options = scores[q];
      } else {
        row.not_scored = "the model's scores are not finite";
      }
      ++q;
    }
    if (right) {
      result.add_answer(*right);
    } else {
      result.add_not_scored(row.line, row.not_scored);
    }
  }
}

CoreTaskResult run_core_task(QuestionScorer& scorer, const CoreExamples& examples,
                             const Tokenizer& tokenizer, const CoreSetting& setting,
                             const CoreProgress& progress) {
  CoreTaskResult result = unscored_task(examples);
  Encoder encoder(tokenizer);
  CoreWork work;
  const CorePart& part = setting.part;
  CHECK(part.block == 1 || part.block == kCoreBlock, "blocks of %ld rows", long(part.block));
  const int64_t step = part.block == 1 ? part.count : 1;
  for (int64_t begin = part.index * part.block; begin < examples.size();
       begin += kCoreBlock * part.count) {
    const int64_t end = std::min(examples.size(), begin + kCoreBlock * step);
    score_core_rows(scorer, examples, encoder,
                    {.begin = begin,
                     .end = end,
                     .step = step,
                     .bos = tokenizer.eot(),
                     .max_tokens = setting.max_tokens},
                    result, work);
    progress(end, work);
  }
  return result;
}

}  // namespace assay
