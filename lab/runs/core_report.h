// The CORE score of a model, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/core_run.h"

namespace assay {

struct CoreReport {
  std::string checkpoint;
  int64_t step = 0;
  std::string bundle;
  int64_t max_tokens = 0;  // per prompt; longer prompts lose their beginning
  int64_t max_rows = 0;    // per task; 0 = all
  std::vector<CoreTaskResult> tasks;
  std::vector<double> seconds;  // per task; of all ranks or parts together
  // Per task, of the file of its rows; none where a part file of an old version has no hashes.
  std::vector<std::string> rows_sha256;
  std::optional<double> passed_s;    // from begin to end, where ranks shared the tasks
  std::vector<std::string> missing;  // labels not chosen, or without a file
  CoreWork work;
  int64_t rows_computed = 0;  // token rows; a shared prefix counts once
  // Inputs that determine the answers: hashes of model, tokenizer and rows, recipe, device. Flat.
  nlohmann::ordered_json origin = nlohmann::ordered_json::object();

  double total_seconds() const;
  // Prompts that lost their beginning; nullopt where a part of an earlier version has no count.
  std::optional<int64_t> cut_prompts() const;
  bool complete() const;  // its tasks are those of CORE
  bool whole() const;     // and their rows are all: its score is CORE
};

// The score's name: "core", "core_of_at_most_200_rows_each", "mean_of_9_of_22_tasks", ...
std::string core_metric(const CoreReport& report);

std::string core_text(const CoreReport& report);
// "core" is null where the score has another name; "present" has it then.
nlohmann::ordered_json core_json(const CoreReport& report);
// Whether core_json() was of all tasks of CORE and all rows.
bool is_whole_core(const nlohmann::ordered_json& core);
// JSON Lines: a row each of the evaluated rows, with the scores of its options.
std::string core_rows_text(const CoreReport& report);
// The fields of task i common to reports and part files: name, size, time and unscored rows.
nlohmann::ordered_json core_task_json(const CoreReport& report, size_t i);

}  // namespace assay
