// What a field of the configuration may be: a range, a list of choices, a path; and whether it may
// change when a run resumes. engine/config/config.h says how the lists of fields are visited.
#pragma once

#include <string>
#include <vector>

namespace assay {

// Whether a field may change when a run resumes.
enum class OnResume {
  kMustMatch,  // another value would change results
  kSchedule,   // may change if the learning rates of the steps already done do not
  kFree,
};

// The values that a field may have. `choices` is for strings; numbers are finite and in [low,
// high].
struct FieldCheck {
  double low = -1e300;
  double high = 1e300;
  bool low_open = false;   // low itself is not allowed
  bool high_open = false;  // nor high
  std::vector<std::string> choices = {};
  // Relative to the folder of the file that names it; on resume only the file name has to match.
  bool path = false;
  OnResume on_resume = OnResume::kMustMatch;
};
inline FieldCheck any() {
  return {};
}
inline FieldCheck positive() {
  return {.low = 0, .low_open = true};
}
inline FieldCheck not_negative() {
  return {.low = 0};
}
inline FieldCheck at_least(double low) {
  return {.low = low};
}
inline FieldCheck between(double low, double high) {
  return {.low = low, .high = high};
}
inline FieldCheck one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
inline FieldCheck path() {
  return {.path = true};
}
inline FieldCheck free_on_resume(FieldCheck check) {
  check.on_resume = OnResume::kFree;
  return check;
}
// May change when a run resumes if the learning rates of the steps already done do not.
inline FieldCheck by_schedule(FieldCheck check) {
  check.on_resume = OnResume::kSchedule;
  return check;
}

}  // namespace assay
