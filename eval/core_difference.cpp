#include "eval/core_difference.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "eval/core_score.h"

namespace assay {
namespace {

bool same_rows(const std::vector<CoreAnswers>& a, const std::vector<CoreAnswers>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const CoreAnswers& x, const CoreAnswers& y) {
                      return x.label == y.label && x.right.size() == y.right.size();
                    });
}

// a - b of each row that both scored, of one task's centred accuracy.
std::vector<double> row_differences(const CoreAnswers& a, const CoreAnswers& b) {
  const double range = 1 - a.baseline_percent / 100;
  std::vector<double> differences;
  for (size_t i = 0; i < a.right.size(); ++i) {
    if (a.right[i] < 0 || b.right[i] < 0) continue;
    differences.push_back((a.right[i] - b.right[i]) / range);
  }
  return differences;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / double(values.size());
}

}  // namespace

std::optional<std::vector<CoreAnswers>> mean_answers(
    const std::vector<std::vector<CoreAnswers>>& runs) {
  if (runs.empty()) return std::nullopt;
  std::vector<CoreAnswers> mean = runs.front();
  for (const std::vector<CoreAnswers>& run : runs) {
    if (!same_rows(run, mean)) return std::nullopt;
  }
  for (size_t task = 0; task < mean.size(); ++task) {
    for (size_t row = 0; row < mean[task].right.size(); ++row) {
      double sum = 0;
      bool scored = true;
      for (const std::vector<CoreAnswers>& run : runs) {
        scored &= run[task].right[row] >= 0;
        sum += run[task].right[row];
      }
      mean[task].right[row] = scored ? sum / double(runs.size()) : -1;
    }
  }
  return mean;
}

std::optional<CoreDifference> core_difference(const std::vector<CoreAnswers>& a,
                                              const std::vector<CoreAnswers>& b) {
  if (a.empty() || !same_rows(a, b)) return std::nullopt;
  CoreDifference result;
  std::vector<double> samples(kResamples, 0.0);
  for (size_t task = 0; task < a.size(); ++task) {
    const std::vector<double> rows = row_differences(a[task], b[task]);
    if (rows.empty()) return std::nullopt;
    result.mean += mean_of(rows) / double(a.size());
    RandomSequence draw({.seed = 0, .stream = stream_id("core.difference." + a[task].label)});
    for (double& sample : samples) {
      double sum = 0;
      for (size_t i = 0; i < rows.size(); ++i) sum += rows[draw.below(uint32_t(rows.size()))];
      sample += sum / double(rows.size()) / double(a.size());
    }
  }
  const double average = mean_of(samples);
  double squares = 0;
  for (const double sample : samples) squares += (sample - average) * (sample - average);
  result.standard_error = std::sqrt(squares / double(kResamples - 1));
  std::sort(samples.begin(), samples.end());
  const size_t tail = size_t(0.025 * double(kResamples));
  result.low95 = samples[tail];
  result.high95 = samples[samples.size() - 1 - tail];
  return result;
}

}  // namespace assay
