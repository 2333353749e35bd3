#include "eval/core_tasks.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/seconds_since.h"
#include "comm/agree.h"
#include "data/json_text.h"
#include "eval/ranks.h"

namespace assay {

namespace {

using nlohmann::json;

struct Block {
  size_t task = 0;
  int64_t begin = 0, end = 0;  // rows
  int64_t tokens = 0;          // estimated
};

struct ScoredBlock {
  CoreTaskResult rows;
  CoreWork work;
  int64_t rows_computed = 0;
  double seconds = 0;
};

std::vector<Block> blocks_of(const CoreTasks& tasks) {
  std::vector<Block> blocks;
  for (size_t t = 0; t < tasks.examples.size(); ++t) {
    const int64_t rows = tasks.examples[t].size();
    for (int64_t begin = 0; begin < rows; begin += kCoreBlock) {
      const int64_t end = std::min(rows, begin + kCoreBlock);
      blocks.push_back({t, begin, end, tasks.tokens[t] * (end - begin) / rows});
    }
  }
  return blocks;
}

// The blocks' numbers in the order of the rounds: alone one after the other.
std::vector<size_t> dealt(const std::vector<Block>& blocks, int ranks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (ranks == 1) return order;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].tokens > blocks[b].tokens; });
  return order;
}

json row_json(const CoreRowScores& row) {
  json options = json::array();
  for (const PromptScore& s : row.options) options.push_back({s.nats, s.exact, s.tokens});
  return {row.line, row.gold, options, row.not_scored};
}

CoreRowScores parsed_row(const json& j) {
  CoreRowScores row{.line = j.at(0), .gold = j.at(1), .options = {}, .not_scored = j.at(3)};
  for (const json& option : j.at(2)) {
    row.options.push_back({.nats = option.at(0), .exact = option.at(1), .tokens = option.at(2)});
  }
  return row;
}

json block_json(size_t number, const ScoredBlock& block) {
  json rows = json::array();
  for (const CoreRowScores& row : block.rows.scores) rows.push_back(row_json(row));
  return {{"block", number},
          {"answers", block.rows.answers},
          {"rows", rows},
          {"not_scored", block.rows.skipped},
          {"cut_prompts", block.rows.cut_prompts.value_or(0)},
          {"prompts", block.work.prompts},
          {"prompt_tokens", block.work.prompt_tokens},
          {"rows_computed", block.rows_computed},
          {"seconds", block.seconds}};
}

ScoredBlock parsed_block(const json& j) {
  ScoredBlock block;
  const auto skipped = j.at("not_scored").get<std::vector<std::pair<int64_t, std::string>>>();
  auto next = skipped.begin();
  for (const char answer : j.at("answers").get<std::string>()) {
    if (answer == CoreTaskResult::kNotScored) {
      block.rows.add_not_scored(next->first, next->second);
      ++next;
    } else {
      block.rows.add_answer(answer == CoreTaskResult::kRight);
    }
  }
  block.rows.cut_prompts = j.at("cut_prompts").get<int64_t>();
  for (const json& row : j.at("rows")) block.rows.scores.push_back(parsed_row(row));
  block.work = {.prompts = j.at("prompts"), .prompt_tokens = j.at("prompt_tokens")};
  block.rows_computed = j.at("rows_computed");
  block.seconds = j.at("seconds");
  return block;
}

// Fills in the blocks of the other ranks. `mine` are the numbers of this rank's.
void exchange(Group& ranks, std::vector<ScoredBlock>& scored, const std::vector<size_t>& mine) {
  json own = json::array();
  for (const size_t number : mine) own.push_back(block_json(number, scored[number]));
  for (const std::string& text : gather_texts(ranks, own.dump())) {
    for (const json& j : json_or_throw(text)) scored.at(j.at("block")) = parsed_block(j);
  }
}

CoreTaskScores joined(const CoreTasks& tasks, const std::vector<Block>& blocks,
                      const std::vector<ScoredBlock>& scored) {
  CoreTaskScores all;
  for (const CoreExamples& examples : tasks.examples) all.tasks.push_back(unscored_task(examples));
  all.seconds.assign(all.tasks.size(), 0.0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    all.tasks[blocks[i].task].add_rows(scored[i].rows);
    all.seconds[blocks[i].task] += scored[i].seconds;
    all.work.prompts += scored[i].work.prompts;
    all.work.prompt_tokens += scored[i].work.prompt_tokens;
    all.rows_computed += scored[i].rows_computed;
  }
  return all;
}

}  // namespace

std::optional<CoreTaskScores> score_core_tasks(Group* ranks, ModelScorer& scorer,
                                               const CoreTasks& tasks, const EvalWatch& watch) {
  const auto size = size_t(size_of(ranks)), rank = size_t(rank_of(ranks));
  const std::vector<Block> blocks = blocks_of(tasks);
  const std::vector<size_t> order = dealt(blocks, size_of(ranks));
  std::vector<ScoredBlock> scored(blocks.size());
  std::vector<size_t> mine;
  Encoder encoder(tasks.tokenizer);

  const auto score = [&](size_t number) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t rows_before = scorer.rows_computed();
    const Block& block = blocks[number];
    ScoredBlock& out = scored[number];
    score_core_rows(scorer, tasks.examples[block.task], encoder,
                    {.begin = block.begin,
                     .end = block.end,
                     .bos = tasks.tokenizer.eot(),
                     .max_tokens = tasks.max_tokens},
                    out.rows, out.work);
    out.rows_computed = scorer.rows_computed() - rows_before;
    out.seconds = seconds_since(start);
    mine.push_back(number);
  };

  int64_t tokens = 0, done = 0;
  for (const Block& block : blocks) tokens += block.tokens;
  for (size_t first = 0; first < order.size(); first += size) {
    const PartEnd end = run_part(ranks, [&] {
      if (first + rank < order.size()) score(order[first + rank]);
      return watch.interrupted && watch.interrupted() ? PartEnd::kInterrupted : PartEnd::kDone;
    });
    if (end == PartEnd::kInterrupted) return std::nullopt;
    const size_t next = std::min(first + size, order.size());
    for (size_t i = first; i < next; ++i) done += blocks[order[i]].tokens;
    if (watch.progress) {
      const CoreTask& task = tasks.examples[blocks[order[first]].task].task();
      watch.progress("core, " + task.label, double(done) / double(std::max<int64_t>(tokens, 1)));
    }
  }
  if (size > 1) exchange(*ranks, scored, mine);
  return joined(tasks, blocks, scored);
}

}  // namespace assay
