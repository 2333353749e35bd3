// The time that has passed since a moment.
#pragma once

#include <chrono>

namespace assay {

// Seconds on the clock that no change of the time of day moves.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace assay
