// Numbers and booleans in the spelling of YAML 1.2, without the traps of older readers: 010 is
// refused (8 to some, 10 to others), `yes` is a text, 1e-4 is a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

// `problem` continues a message that starts with "model.hidden "; empty on success.
struct ReadInt {
  int64_t value = 0;
  std::string problem;
};
struct ReadDouble {
  double value = 0;
  std::string problem;
};

std::optional<bool> read_bool(const std::string& text);
// Digits with an optional sign, or a number without fraction (8e6); at most 10^15 in magnitude.
ReadInt read_int(const std::string& text);
// A finite number.
ReadDouble read_double(const std::string& text);

}  // namespace assay
