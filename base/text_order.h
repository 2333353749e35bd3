// Characters that turn the order of the text around them, with which a name is shown as another.
// Where names of others are shown they are written out: "\u202e".
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"

namespace assay {

// The marks, embeddings, overrides and isolates of Unicode's bidirectional algorithm.
inline constexpr unsigned kTurns[] = {0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c,
                                      0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069};

inline bool turns_text(unsigned code) {
  return std::find(std::begin(kTurns), std::end(kTurns), code) != std::end(kTurns);
}

// One of these characters in UTF-8.
inline std::string turn_bytes(unsigned code) {
  const auto next = [](unsigned bits) { return static_cast<char>(0x80 | (bits & 0x3f)); };
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), next(code)};
  return {static_cast<char>(0xe0 | code >> 12), next(code >> 6), next(code)};
}

// The text with these characters written out, after this backslash.
inline std::string with_turns_shown(std::string_view text, std::string_view backslash = "\\") {
  std::string shown;
  shown.reserve(text.size());
  for (; !text.empty(); text.remove_prefix(1)) {
    const bool is_ascii = static_cast<unsigned char>(text.front()) < 0x80;
    const auto at = std::find_if(is_ascii ? std::end(kTurns) : std::begin(kTurns), std::end(kTurns),
                                 [&](unsigned code) { return text.starts_with(turn_bytes(code)); });
    if (at == std::end(kTurns)) {
      shown += text.front();
      continue;
    }
    shown += std::string(backslash) + strprintf("u%04x", *at);
    text.remove_prefix(turn_bytes(*at).size() - 1);
  }
  return shown;
}

}  // namespace assay
