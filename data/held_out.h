// Which documents are held out for validation, by what they say: not by their place, so that the
// split stays when files are cut, joined, reordered or added to, and copies of a document are on
// one side.
//
//   number(text) = first 53 bits of SHA-256(first MiB of the text without surrounding white space) / 2^53
//   held out:      number < share, so the documents of a smaller share are among those of a larger one
#pragma once

#include <string_view>

namespace assay {

// In [0, 1). Of a document that comes in parts, its first part is enough (RawDocument).
double document_number(std::string_view text);

}  // namespace assay
