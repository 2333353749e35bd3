// Decides which runs of a matrix may train at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace assay {

struct MatrixBudget {
  int64_t jobs = 1;          // runs at a time
  int64_t memory_bytes = 0;  // planned, for all of them together
};

// Index of the first waiting run that fits beside the running ones (both given by their planned
// bytes); nullopt if none does. A run larger than the budget never fits: the caller refuses it
// beforehand.
inline std::optional<size_t> next_to_start(std::span<const int64_t> waiting,
                                           std::span<const int64_t> running,
                                           const MatrixBudget& budget) {
  if (static_cast<int64_t>(running.size()) >= budget.jobs) return std::nullopt;
  int64_t left = budget.memory_bytes;
  for (const int64_t bytes : running) left -= bytes;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i] <= left) return i;
  }
  return std::nullopt;
}

}  // namespace assay
