// CORE (Li et al., DataComp-LM, 2024): 22 few-shot tasks and how they are defined by the files of
// its bundle.
//
//   BUNDLE/core.yaml             the tasks, in the order of the score
//   BUNDLE/eval_meta_data.csv    accuracy of guessing, percent, by task
//   BUNDLE/eval_data/...jsonl    rows, one JSON object a line
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

enum class CoreKind { kMultipleChoice, kSchema, kLanguageModeling };
const char* core_kind_name(CoreKind kind);  // "multiple_choice", ...

struct CoreTask {
  std::string label;
  CoreKind kind = CoreKind::kMultipleChoice;
  int64_t shots = 0;
  std::string delimiter = " ";  // between a question and its answer
  std::string path;             // of its rows
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
  std::vector<CoreTask> tasks;       // whose file is there
  std::vector<std::string> missing;  // labels of those whose file is not
};

// UserError naming file and line for what is absent, of another form, or contradictory.
CoreBundle read_core_bundle(const std::string& folder);
// The tasks with these labels alone, in the bundle's order; the others are missing from it. No
// labels: all. UserError, which begins with who asked, for a label that has no file.
CoreBundle with_tasks(CoreBundle bundle, const std::vector<std::string>& labels,
                      const std::string& asked_by);
std::vector<CoreRow> read_core_rows(const CoreTask& task);

// Parsers of file contents; `name` is for messages.
std::vector<CoreTask> parse_core_yaml(const std::string& text, const std::string& name);
std::vector<CoreRow> parse_core_rows(std::string_view text, CoreKind kind, const std::string& name);

}  // namespace assay
