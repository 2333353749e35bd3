#include "data/held_out.h"

#include <string>

#include "data/documents.h"
#include "data/sha256.h"

namespace assay {

double document_number(std::string_view text) {
  const size_t first = text.find_first_not_of(kDocumentSpace);
  if (first == std::string_view::npos) return 0;
  text = text.substr(first, text.find_last_not_of(kDocumentSpace) + 1 - first);
  const std::string hash = sha256_hex(text.substr(0, kFirstPartBytes));
  return static_cast<double>(std::stoull(hash.substr(0, 16), nullptr, 16) >> 11) * 0x1p-53;
}

}  // namespace assay
