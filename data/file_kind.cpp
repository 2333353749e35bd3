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
                                     {"SQLite format 3\0"sv, {"an SQLite database", kExport}},
                                     {"ARROW1\0\0"sv, {"an Arrow file", kExport}}};
constexpr FileKind kBzip2 = {"a bzip2 file", kUnpack};
constexpr FileKind kTar = {"a tar archive",
                           "unpack it with tar, and give the folder of what was in it"};
constexpr FileKind kArrowStream = {"an Arrow stream", kExport};

// BZh, a digit, and the mark of a block or of the end.
bool is_bzip2(std::string_view begin) {
  if (begin.size() < 10 || !begin.starts_with("BZh") || begin[3] < '1' || begin[3] > '9') {
    return false;
  }
  const std::string_view mark = begin.substr(4, 6);
  return mark == "\x31\x41\x59\x26\x53\x59"sv || mark == "\x17\x72\x45\x38\x50\x90"sv;
}

// The mark of POSIX or of GNU in the first header.
bool is_tar(std::string_view begin) {
  constexpr size_t kMark = 257;
  constexpr std::string_view kPosix = "ustar\0"sv, kGnu = "ustar  \0"sv;
  static_assert(kMark + kGnu.size() <= kSignatureBytes);
  if (begin.size() < kMark) return false;
  const std::string_view mark = begin.substr(kMark);
  return mark.starts_with(kPosix) || mark.starts_with(kGnu);
}

// Four bytes of ones, then the length of the schema, a multiple of 8 below 2^24. Hugging Face's
// `datasets` writes such files.
bool is_arrow_stream(std::string_view begin) {
  return begin.size() >= 8 && begin.starts_with("\xff\xff\xff\xff") && begin[4] % 8 == 0 &&
         begin[7] == '\0';
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
  if (is_bzip2(begin)) return &kBzip2;
  if (is_tar(begin)) return &kTar;
  return is_arrow_stream(begin) ? &kArrowStream : nullptr;
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
