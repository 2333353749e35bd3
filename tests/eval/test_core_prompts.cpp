#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "eval/core_prompts.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_data.h"

namespace assay::test_core_prompts {
namespace {

using nlohmann::json;

std::string order_hash(const CoreExamples& examples) {
  std::string bytes;
  for (int64_t i = 0; i < examples.size(); ++i) {
    for (int shift = 0; shift < 32; shift += 8) bytes += char(examples.line(i) >> shift);
  }
  return sha256_hex(bytes);
}

// A field that a row does not fix is null or absent.
bool has(const json& golden, const char* field) {
  const auto found = golden.find(field);
  return found != golden.end() && !found->is_null();
}

// Compares every field of a golden row that the definition of CORE fixes.
void check_golden(const json& golden, const CoreExamples& examples, Encoder& encoder, int32_t bos) {
  const int64_t idx = golden["idx"];
  INFO(golden["task"] << " idx " << idx);
  REQUIRE(golden["n"] == examples.size());
  REQUIRE(golden["type"] == core_kind_name(examples.task().kind));
  REQUIRE(golden["orig_line"] == examples.line(idx));
  REQUIRE(golden["fewshot_idx"] == examples.shots(idx));
  std::vector<std::string> hashes;
  for (const std::string& text : examples.prompts(idx)) hashes.push_back(sha256_hex(text));
  REQUIRE(golden["prompt_sha256"] == hashes);
  const CoreQuestion question = examples.question(idx, encoder, bos, 0);
  REQUIRE(question.not_scored.empty());
  if (has(golden, "gold")) REQUIRE(golden["gold"] == question.gold);
  std::vector<int64_t> begin, end, count;
  for (const CorePrompt& prompt : question.prompts) {
    begin.push_back(prompt.begin);
    end.push_back(prompt.end);
    count.push_back(int64_t(prompt.tokens.size()));
  }
  REQUIRE(golden["start"] == begin);
  REQUIRE(golden["end"] == end);
  REQUIRE(golden["ntok"] == count);
  if (has(golden, "tokens")) {
    for (size_t p = 0; p < question.prompts.size(); ++p) {
      REQUIRE(golden["tokens"][p] == question.prompts[p].tokens);
    }
  }
  if (has(golden, "shuffle_sha256_u32le")) {
    REQUIRE(golden["shuffle_sha256_u32le"] == order_hash(examples));
  }
}

TEST_CASE("orders, examples, prompts, tokens and spans equal the golden rows") {
  const std::string folder = test_data("core"), gpt2 = test_data("gpt2");
  if (folder.empty() || gpt2.empty()) return;
  const Tokenizer tokenizer = read_tokenizer(gpt2);
  Encoder encoder(tokenizer);
  const CoreBundle bundle = read_core_bundle(folder);
  REQUIRE(bundle.tasks.size() == 9);
  REQUIRE(bundle.missing.size() == 13);
  std::map<std::string, CoreExamples> examples;
  for (const CoreTask& task : bundle.tasks) {
    examples.emplace(task.label, CoreExamples(task, read_core_rows(task)));
  }
  std::ifstream rows(folder + "/core_golden.jsonl");
  int checked = 0;
  for (std::string line; std::getline(rows, line); ++checked) {
    const json golden = json::parse(line);
    check_golden(golden, examples.at(golden["task"]), encoder, tokenizer.eot());
  }
  REQUIRE(checked == 45);
}

TEST_CASE("every row of three tasks can be scored, with the published token counts") {
  const std::string folder = test_data("core"), gpt2 = test_data("gpt2");
  if (folder.empty() || gpt2.empty()) return;
  const Tokenizer tokenizer = read_tokenizer(gpt2);
  Encoder encoder(tokenizer);
  for (const CoreTask& task : read_core_bundle(folder).tasks) {
    if (task.label != "copa" && task.label != "winograd" && task.label != "bigbench_operators") {
      continue;  // only the three that are fast to encode
    }
    INFO(task.label);
    const CoreExamples examples(task, read_core_rows(task));
    int64_t tokens = 0, longest = 0;
    for (int64_t i = 0; i < examples.size(); ++i) {
      const CoreQuestion question = examples.question(i, encoder, tokenizer.eot(), 0);
      REQUIRE(question.not_scored.empty());
      for (const CorePrompt& prompt : question.prompts) {
        tokens += int64_t(prompt.tokens.size());
        longest = std::max(longest, int64_t(prompt.tokens.size()));
      }
    }
    if (task.label == "copa") REQUIRE((tokens == 3253 && longest == 23));
    if (task.label == "winograd") REQUIRE((tokens == 11625 && longest == 44));
  }
}

// Every byte is a token, so that spans can be counted by hand.
Tokenizer byte_tokenizer() {
  Vocabulary vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary.bytes.emplace_back(1, char(b));
  vocabulary.bytes.emplace_back(kEndOfText);
  vocabulary.special = {256};
  return Tokenizer(std::move(vocabulary));
}

CoreQuestion asked(CoreKind kind, const CoreRow& row, int64_t max_tokens = 0) {
  const Tokenizer tokenizer = byte_tokenizer();
  Encoder encoder(tokenizer);
  CoreTask task;
  task.label = "t";
  task.kind = kind;
  return CoreExamples(task, {row}).question(0, encoder, 256, max_tokens);
}

CoreRow choice_row() {
  CoreRow row;
  row.context = "ab";
  row.options = {"xyz", "xw"};
  row.gold = 1;
  return row;
}

TEST_CASE("multiple choice scores the tokens after the choices' common prefix") {
  const CoreQuestion q = asked(CoreKind::kMultipleChoice, choice_row());
  REQUIRE(q.prompts.size() == 2);
  REQUIRE(q.prompts[0].tokens == std::vector<int32_t>{256, 'a', 'b', ' ', 'x', 'y', 'z'});
  REQUIRE((q.prompts[0].begin == 5 && q.prompts[0].end == 7));
  REQUIRE((q.prompts[1].begin == 5 && q.prompts[1].end == 6));
  REQUIRE(q.gold == 1);
}

TEST_CASE("a schema scores the common suffix of its prompts") {
  CoreRow row;
  row.options = {"a b", "c b"};
  row.continuation = "de";
  const CoreQuestion q = asked(CoreKind::kSchema, row);
  REQUIRE(q.prompts[1].tokens == std::vector<int32_t>{256, 'c', ' ', 'b', ' ', 'd', 'e'});
  REQUIRE((q.prompts[1].begin == 2 && q.prompts[1].end == 7));
}

TEST_CASE("language modeling scores the continuation, with the space stripped from the prompt") {
  CoreRow row;
  row.context = " \xC2\xA0q\n";
  row.continuation = "ans";
  const CoreQuestion q = asked(CoreKind::kLanguageModeling, row);
  REQUIRE(q.prompts.size() == 1);
  REQUIRE(q.prompts[0].tokens == std::vector<int32_t>{256, 'q', ' ', 'a', 'n', 's'});
  REQUIRE((q.prompts[0].begin == 2 && q.prompts[0].end == 6));
}

TEST_CASE("a prompt longer than the context keeps its end") {
  const CoreQuestion q = asked(CoreKind::kMultipleChoice, choice_row(), 5);
  REQUIRE(q.prompts[0].tokens == std::vector<int32_t>{'b', ' ', 'x', 'y', 'z'});
  REQUIRE((q.prompts[0].begin == 3 && q.prompts[0].end == 5));
  REQUIRE(q.prompts[1].tokens.size() == 5);
  REQUIRE((q.prompts[1].begin == 4 && q.prompts[1].end == 5));
}

TEST_CASE("rows that cannot be scored give the reason") {
  CoreRow same = choice_row();
  same.options = {"x", "x"};
  REQUIRE(asked(CoreKind::kMultipleChoice, same).not_scored ==
          "no token of the answer is left to score");
  REQUIRE(asked(CoreKind::kMultipleChoice, choice_row(), 2).not_scored ==
          "the answer is longer than the model's context");
  CoreRow contexts;
  contexts.options = {"Ann", "Ann"};
  contexts.continuation = "won";
  for (const int64_t max_tokens : {0, 4}) {
    REQUIRE(asked(CoreKind::kSchema, contexts, max_tokens).not_scored ==
            "the contexts do not differ");
  }
  // For an empty answer, the delimiter before it is not scored instead.
  CoreRow empty;
  empty.context = "q";
  empty.options = {"Ann", "Ben"};
  REQUIRE(asked(CoreKind::kLanguageModeling, empty).not_scored == "the answer is empty");
  REQUIRE(asked(CoreKind::kSchema, empty).not_scored == "the answer is empty");
  empty.options = {"", "x"};
  REQUIRE(asked(CoreKind::kMultipleChoice, empty).not_scored ==
          "no token of the answer is left to score");
}

TEST_CASE("examples come from other rows, and there must be enough") {
  CoreTask task;
  task.label = "few";
  task.shots = 3;
  const std::vector<CoreRow> rows(6, choice_row());
  const CoreExamples examples(task, rows);
  for (int64_t i = 0; i < examples.size(); ++i) {
    const std::vector<int64_t> shots = examples.shots(i);
    REQUIRE(shots.size() == 3);
    REQUIRE(std::find(shots.begin(), shots.end(), i) == shots.end());
  }
  REQUIRE(CoreExamples(task, rows, 4).size() == 4);
  expect_error([&] { CoreExamples(task, rows, 3); },
               "few: 3 examples before each question, and 3 rows to take them from");
}

TEST_CASE("a limit that leaves out no row is none") {
  const auto of_rows = [](size_t rows, int64_t max_rows) {
    return CoreExamples(CoreTask(), std::vector<CoreRow>(rows, choice_row()), max_rows);
  };
  REQUIRE(limit_of_rows({of_rows(3, 5), of_rows(5, 5)}, 5) == 0);
  REQUIRE(limit_of_rows({of_rows(3, 5), of_rows(6, 5)}, 5) == 5);
  REQUIRE(limit_of_rows({of_rows(6, 0)}, 0) == 0);
}

TEST_CASE("white space is stripped as Python strips it") {
  REQUIRE(python_strip("\x1F\xE3\x80\x80 a b\xE2\x80\xA8\n") == "a b");
  REQUIRE(python_strip("\xE2\x80\x8B") == "\xE2\x80\x8B");  // a zero-width space is not white space
  REQUIRE(python_strip(" \n ").empty());
}

}  // namespace
}  // namespace assay::test_core_prompts
