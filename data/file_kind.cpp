#include "data/file_kind.h"

#include <algorithm>

#include "data/utf8.h"

namespace assay {

namespace {

struct Signature {
  std::string_view bytes;
  const char* kind;
};
constexpr Signature kSignatures[] = {
    {"\x1f\x8b", "a gzip file"},  {"\x28\xb5\x2f\xfd", "a zstd file"},
    {"PK\x03\x04", "a zip file"}, {"\x93NUMPY", "a NumPy array"},
    {"PAR1", "a Parquet file"},   {"SQLite format 3", "an SQLite database"}};

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

std::string seems_to_be(std::string_view begin) {
  const auto said = [](const char* kind) { return std::string(" (it looks like ") + kind + ")"; };
  for (const Signature& s : kSignatures)
    if (begin.starts_with(s.bytes)) return said(s.kind);
  if (!is_text(begin)) return "";
  const size_t first = begin.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (begin[first] == '{' || begin[first] == '[');
  return said(json ? "JSON" : "text");
}

}  // namespace assay
