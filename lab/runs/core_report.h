// The CORE score of a model, as text for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/core_run.h"

namespace assay {

struct CoreReport {
  std::string checkpoint;
  int64_t step = 0;
  std::string bundle;
  int64_t max_tokens = 0;  // of a prompt; longer ones lost their beginning
  int64_t max_rows = 0;    // of a task; 0: all
  std::vector<CoreTaskResult> tasks;
  std::vector<double> seconds;       // of each task
  std::vector<std::string> missing;  // labels without a file
  CoreWork work;
  int64_t rows_computed = 0;
  // What its answers follow from: hashes of model, tokenizer and rows, recipe, device. Flat.
  nlohmann::ordered_json origin = nlohmann::ordered_json::object();

  double total_seconds() const;
  bool complete() const { return missing.empty(); }
};

std::string core_text(const CoreReport& report);
nlohmann::ordered_json core_json(const CoreReport& report);
// Of task i: what every file about it has, its name, size, time and the rows that were not scored.
nlohmann::ordered_json core_task_json(const CoreReport& report, size_t i);

}  // namespace assay
