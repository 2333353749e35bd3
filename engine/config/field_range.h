// Whether the value of a field is one that its check allows.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/choice.h"
#include "engine/config/field_check.h"
#include "engine/config/fields.h"

namespace assay {

inline bool in_range(double value, const FieldCheck& check) {
  return std::isfinite(value) && (check.high_open ? value < check.high : value <= check.high) &&
         (check.low_open ? value > check.low : value >= check.low);
}

// out_of_range(value, check): "" if the check allows the value, else what is wrong, as the
// continuation of a message that begins with the field's name.
inline std::string out_of_range(bool, const FieldCheck&) {
  return "";
}
inline std::string out_of_range(const std::vector<std::string>&, const FieldCheck&) {
  return "";
}
inline std::string out_of_range(int64_t value, const FieldCheck& check) {
  return in_range(static_cast<double>(value), check)
             ? ""
             : "= " + yaml_scalar(value) + " is out of range";
}
inline std::string out_of_range(double value, const FieldCheck& check) {
  return in_range(value, check) ? "" : "= " + yaml_scalar(value) + " is out of range";
}
inline std::string out_of_range(const std::string& value, const FieldCheck& check) {
  const auto& known = check.choices;
  if (known.empty() || std::find(known.begin(), known.end(), value) != known.end()) return "";
  return "= " + yaml_scalar(value) + " is not a choice";
}
inline std::string out_of_range(const BiasRate& value, const FieldCheck& check) {
  return value.automatic ? "" : out_of_range(value.number, check);
}
inline std::string out_of_range(const std::optional<double>& value, const FieldCheck& check) {
  return value ? out_of_range(*value, check) : "";
}
inline std::string out_of_range(const std::optional<std::vector<double>>& values,
                                const FieldCheck& check) {
  for (const double value : values.value_or(std::vector<double>())) {
    const std::string wrong = out_of_range(value, check);
    if (!wrong.empty()) return wrong;
  }
  return "";
}
template <IsChoice E>
std::string out_of_range(E, const FieldCheck&) {
  return "";
}
template <IsChoice E>
std::string out_of_range(const std::optional<E>&, const FieldCheck&) {
  return "";
}

}  // namespace assay
