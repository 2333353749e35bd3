// The prompts of a CORE task: which rows in which order, their few-shot examples, the text, and
// which of its tokens count.
//
//   order     rows are shuffled by PythonRandom(1337), then cut to the first max_rows; idx counts
//             the rows that are left
//   examples  of idx: PythonRandom(1234 + idx).sample(n - 1, shots) over all other rows, in the
//             order drawn
//   tokens    BOS + encoding of the text
//
//   multiple choice    example = query + delimiter + right choice + "\n\n"; one prompt per choice;
//                      tokens after the prefix common to all prompts count
//   schema             example = right context + delimiter + continuation + "\n\n"; one prompt per
//                      context; the suffix common to all prompts counts
//   language modeling  example = stripped context + delimiter + continuation + "\n\n"; one prompt,
//                      and one without the continuation, stripped at both ends, which only marks
//                      where the continuation begins; tokens after the latter's length count
//
// Prompts longer than the model's context keep their last tokens, and lose BOS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "eval/core_bundle.h"

namespace assay {

// The tokens [begin, end) count. Token p is predicted from those before it, so begin is at least 1.
struct CorePrompt {
  std::vector<int32_t> tokens;
  int64_t begin = 0, end = 0;
};

struct CoreQuestion {
  std::vector<CorePrompt> prompts;  // one per option; language modeling: one
  int64_t gold = 0;
  int64_t cut_prompts = 0;  // that were longer than the limit
  std::string not_scored;   // why; "" = it can be scored
};

class CoreExamples {
 public:
  // max_rows 0: all. UserError if there are fewer rows than the examples and a question need.
  CoreExamples(CoreTask task, std::vector<CoreRow> rows, int64_t max_rows = 0);

  const CoreTask& task() const { return task_; }
  int64_t size() const { return int64_t(order_.size()); }
  bool has_fewer_rows() const { return order_.size() < rows_.size(); }  // than the file
  int64_t line(int64_t idx) const { return order_[size_t(idx)]; }       // of the file, 0-based
  std::vector<int64_t> shots(int64_t idx) const;                        // idx of the examples
  const CoreRow& row(int64_t idx) const { return rows_[size_t(order_[size_t(idx)])]; }
  // Texts; language modeling: without the continuation, then with it.
  std::vector<std::string> prompts(int64_t idx) const;
  // max_tokens 0: no limit. bos: the <|endoftext|> of the encoder's tokenizer.
  CoreQuestion question(int64_t idx, Encoder& encoder, int32_t bos, int64_t max_tokens) const;

 private:
  CoreTask task_;
  std::vector<CoreRow> rows_;
  std::vector<int64_t> order_;
};

// Strips white space at both ends, like Python's str.strip (Unicode).
std::string_view python_strip(std::string_view text);

// max_rows, or 0 if that leaves out no row of any task: the score is then that of all rows.
int64_t limit_of_rows(const std::vector<CoreExamples>& tasks, int64_t max_rows);

// Estimates the prompt tokens of the whole task from a few of its questions, for progress.
int64_t estimated_tokens(const CoreExamples& examples, const Tokenizer& tokenizer,
                         int64_t max_tokens);

}  // namespace assay
