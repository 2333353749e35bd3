// Is a text UTF-8?
#pragma once

#include <cstddef>
#include <string_view>

namespace assay {

// Position of the first byte that is not part of a character in UTF-8 (RFC 3629: no surrogates, no
// overlong forms, up to U+10FFFF); text.size() if all are.
size_t first_not_utf8(std::string_view text);

}  // namespace assay
