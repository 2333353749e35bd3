// The prompts of a CORE task: which rows in which order, their few-shot examples, the text, and
// which of its tokens count.
//
//   rows are shuffled by PythonRandom(1337), then cut to the first max_rows; idx counts from here on
//   examples of idx: PythonRandom(1234 + idx).sample(n - 1, shots) over all other rows, in the order drawn
//   multiple choice   example = query + delimiter + right choice + "\n\n";  a prompt for each choice
//   schema            example = right context + delimiter + continuation + "\n\n";  a prompt for each context
//   language modeling example = stripped context + delimiter + continuation + "\n\n";  one prompt, and one without the
//                     continuation, stripped at both ends, that only says where the continuation begins
//   tokens = BOS + encoding.  What counts, [begin, end): multiple choice: behind the prefix that all prompts have in common;
//   schema: the suffix they have in common; language modeling: behind the tokens of the prompt without continuation
//
// Longer prompts than the model reads keep their last tokens, and lose BOS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "eval/core_bundle.h"

namespace assay {

// Tokens of which [begin, end) count: token p is predicted from those before it, so begin is at
// least 1.
struct CorePrompt {
  std::vector<int32_t> tokens;
  int64_t begin = 0, end = 0;
};

struct CoreQuestion {
  std::vector<CorePrompt> prompts;  // one an option; language modeling: one
  int64_t gold = 0;
  std::string not_scored;  // why; "" = it can be scored
};

class CoreExamples {
 public:
  // max_rows 0: all. UserError when there are fewer rows than examples and a question.
  CoreExamples(CoreTask task, std::vector<CoreRow> rows, int64_t max_rows = 0);

  const CoreTask& task() const { return task_; }
  int64_t size() const { return int64_t(order_.size()); }
  int64_t line(int64_t idx) const { return order_[size_t(idx)]; }  // of the file, from 0
  std::vector<int64_t> shots(int64_t idx) const;                   // their idx
  const CoreRow& row(int64_t idx) const { return rows_[size_t(order_[size_t(idx)])]; }
  // Texts; language modeling: without the continuation, then with it.
  std::vector<std::string> prompts(int64_t idx) const;
  // max_tokens 0: no limit. The encoder's tokenizer has an <|endoftext|>, `bos`.
  CoreQuestion question(int64_t idx, Encoder& encoder, int32_t bos, int64_t max_tokens) const;

 private:
  CoreTask task_;
  std::vector<CoreRow> rows_;
  std::vector<int64_t> order_;
};

// Without white space at both ends, as Python's str.strip has it (Unicode).
std::string_view python_strip(std::string_view text);

// Prompt tokens of the whole task, from a few of its questions: for progress.
int64_t estimated_tokens(const CoreExamples& examples, const Tokenizer& tokenizer,
                         int64_t max_tokens);

}  // namespace assay
