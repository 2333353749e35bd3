// Numbers and truth values as YAML 1.2 spells them, without the traps of older readers: 010 is
// refused (8 to some, 10 to others), `yes` is a text, 1e-4 is a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

// `problem` completes the sentence "model.hidden ..."; empty when the value was read.
struct ReadInt {
  int64_t value = 0;
  std::string problem;
};
struct ReadDouble {
  double value = 0;
  std::string problem;
};

std::optional<bool> read_bool(const std::string& text);
// Digits with an optional sign, or a number without fraction (8e6); at most 10^15 either way.
ReadInt read_int(const std::string& text);
// Finite.
ReadDouble read_double(const std::string& text);

}  // namespace assay
