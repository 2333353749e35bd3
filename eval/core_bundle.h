// CORE (Li et al., DataComp-LM, 2024): 22 few-shot tasks, defined by the files of its bundle.
//
//   BUNDLE/core.yaml             the tasks, in the order of the score
//   BUNDLE/eval_meta_data.csv    accuracy of guessing by task, in percent, of a version of CORE
//                                (eval/core_score.h)
//   BUNDLE/eval_data/...jsonl    rows, one JSON object per line
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay {

enum class CoreKind { kMultipleChoice, kSchema, kLanguageModeling };
const char* core_kind_name(CoreKind kind);  // "multiple_choice", ...

struct CoreTask {
  std::string label;
  CoreKind kind = CoreKind::kMultipleChoice;
  int64_t shots = 0;
  std::string delimiter = " ";  // between a question and its answer
  std::string path;             // file of its rows
  double baseline_percent = 0;  // accuracy of guessing
};

// One row, by the task's kind.
struct CoreRow {
  std::string context;               // multiple choice: the query; language modeling: the context
  std::vector<std::string> options;  // multiple choice: the choices; schema: the contexts
  std::string continuation;          // schema, language modeling
  int64_t gold = 0;                  // index of the right option
};

struct CoreBundle {
  std::string folder;
  std::vector<CoreTask> tasks;       // tasks with a file
  std::vector<std::string> missing;  // labels of the tasks without a file
};

// UserError with file and line if something is absent, malformed or contradictory.
CoreBundle read_core_bundle(const std::string& folder);
// Keeps only the tasks with these labels, in the bundle's order; the others become `missing`. No
// labels: all tasks. UserError, beginning with asked_by, for a label without a file.
CoreBundle with_tasks(CoreBundle bundle, const std::vector<std::string>& labels,
                      const std::string& asked_by);
std::vector<CoreRow> read_core_rows(const CoreTask& task);
// SHA-256 by name of core.yaml, eval_meta_data.csv, and the rows of each task by label, "none" for
// the missing ones: equal names for equal core.yaml. UserError for a file that cannot be read.
std::vector<std::pair<std::string, std::string>> core_bundle_hashes(const CoreBundle& bundle);

// Parsers of file contents; `name` is for messages.
std::vector<CoreTask> parse_core_yaml(const std::string& text, const std::string& name);
std::vector<CoreRow> parse_core_rows(std::string_view text, CoreKind kind, const std::string& name);

}  // namespace assay
