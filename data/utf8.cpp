#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace assay {

namespace {

// Bytes of the character that begins at `at`; 0 if none does. A table of RFC 3629, section 4.
size_t character_bytes(const unsigned char* at, size_t left) {
  const unsigned char first = at[0];
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (bytes > left) return 0;
  const unsigned char lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at[1] < lowest || at[1] > highest) return 0;
  for (size_t i = 2; i < bytes; ++i)
    if (at[i] < 0x80 || at[i] > 0xbf) return 0;
  return bytes;
}

}  // namespace

size_t first_not_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, bytes + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t character = character_bytes(bytes + at, text.size() - at);
    if (character == 0) return at;
    at += character;
  }
  return at;
}

}  // namespace assay
