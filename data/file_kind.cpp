#include "data/file_kind.h"

#include <algorithm>

#include "data/utf8.h"

namespace assay {

namespace {

using std::string_view_literals::operator""sv;

constexpr const char* kUnpack =
    "decompress it first; what is packed once by gzip or zstd is decompressed while it is read if "
    "its name ends in .gz or .zst";
constexpr const char* kExport = "export its texts as JSONL, one object per line";

struct Signature {
  std::string_view bytes;
  FileKind kind;
};
// Long enough that no text about such files begins so. Of Parquet with the first field of the first
// header; of bzip2 see below.
constexpr Signature kSignatures[] = {{"\x1f\x8b"sv, {"a gzip file", kUnpack}},
                                     {"\x28\xb5\x2f\xfd"sv, {"a zstd file", kUnpack}},
                                     {"\xfd\x37zXZ\0"sv, {"an xz file", kUnpack}},
                                     {"PK\x03\x04"sv, {"a zip file", kUnpack}},
                                     {"\x93NUMPY"sv, {"a NumPy array", kExport}},
                                     {"PAR1\x15"sv, {"a Parquet file", kExport}},
                                     {"SQLite format 3\0"sv, {"an SQLite database", kExport}}};
constexpr FileKind kBzip2 = {"a bzip2 file", kUnpack};

// BZh, a digit, and the mark of a block or of the end.
bool is_bzip2(std::string_view begin) {
  if (begin.size() < 10 || !begin.starts_with("BZh") || begin[3] < '1' || begin[3] > '9') {
    return false;
  }
  const std::string_view mark = begin.substr(4, 6);
  return mark == "\x31\x41\x59\x26\x53\x59"sv || mark == "\x17\x72\x45\x38\x50\x90"sv;
}

bool is_text(std::string_view begin) {
  const auto control = [](char c) {
    const unsigned char u = static_cast<unsigned char>(c);
    return (u < 0x20 && (u < '\t' || u > '\r')) || u == 0x7f;
  };
  // The last character may be cut.
  const std::string_view whole = begin.substr(0, first_not_utf8(begin));
  return !begin.empty() && begin.size() - whole.size() < 4 &&
         std::none_of(whole.begin(), whole.end(), control);
}

}  // namespace

const FileKind* binary_kind(std::string_view begin) {
  for (const Signature& s : kSignatures)
    if (begin.starts_with(s.bytes)) return &s.kind;
  return is_bzip2(begin) ? &kBzip2 : nullptr;
}

std::string seems_to_be(std::string_view begin) {
  const auto said = [](const char* kind) { return std::string(" (it looks like ") + kind + ")"; };
  if (const FileKind* kind = binary_kind(begin)) return said(kind->name);
  if (!is_text(begin)) return "";
  const size_t first = begin.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (begin[first] == '{' || begin[first] == '[');
  return said(json ? "JSON" : "text");
}

}  // namespace assay
