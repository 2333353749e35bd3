// Names what a file seems to be, for errors about a file of the wrong kind.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

struct FileKind {
  const char* name;     // "a gzip file"
  const char* as_text;  // hint: how to get text out of it
};

// binary_kind() needs so many bytes, or the whole of a shorter file.
constexpr size_t kSignatureBytes = 265;
// The kind of a file that is compressed or binary, from its first bytes; null for text and for what
// is not known. No text begins as these files do.
const FileKind* binary_kind(std::string_view begin);

// " (it looks like JSON)", from the first bytes of the file; "" for bytes that look like nothing
// known. begin: about 1 KB.
std::string seems_to_be(std::string_view begin);

}  // namespace assay
