// The difference of two models' CORE over the same rows, by a paired bootstrap: each of kResamples
// samples draws rows within each task, the same for both models.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace assay {

// A model's answers to the rows of a task: for each row the share of its runs that were right;
// negative if one of them did not score the row.
struct CoreAnswers {
  std::string label;
  double baseline_percent = 0;
  std::vector<double> right;
};

// The mean of several runs' answers, run by run the same tasks. nullopt if runs differ in their
// tasks or numbers of rows, or there is none.
std::optional<std::vector<CoreAnswers>> mean_answers(
    const std::vector<std::vector<CoreAnswers>>& runs);

struct CoreDifference {
  double mean = 0;               // a - b over the rows that both scored
  double standard_error = 0;     // standard deviation of the samples
  double low95 = 0, high95 = 0;  // of the samples: 2.5% are below, 2.5% above
};

// nullopt if a and b differ in their tasks or numbers of rows, or a task has no row that both
// scored.
std::optional<CoreDifference> core_difference(const std::vector<CoreAnswers>& a,
                                              const std::vector<CoreAnswers>& b);

}  // namespace assay
