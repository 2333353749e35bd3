// Is a text UTF-8, and does it begin with a byte order mark?
#pragma once

#include <cstddef>
#include <string_view>

namespace assay {

// Position of the first byte that is not part of a character in UTF-8 (RFC 3629: no surrogates, no
// overlong forms, up to U+10FFFF); text.size() if all are.
size_t first_not_utf8(std::string_view text);

// U+FEFF, with which some editors begin a file.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
// The text behind it; the whole text if it does not begin with one.
inline std::string_view without_mark(std::string_view text) {
  return text.substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

}  // namespace assay
