// Decides by their text which documents are held out for validation. The split does not change when
// files are cut, joined, reordered or added to, and equal documents are in the same split.
//
//   number(text) = first 53 bits of SHA-256(first MiB of the text, outer white space cut) / 2^53
//   held out:      number < share; the documents of a smaller share are among those of a larger
#pragma once

#include <string_view>

namespace assay {

// The number above, in [0, 1). Of a document in parts, the first part is enough (RawDocument).
double document_number(std::string_view text);

}  // namespace assay
