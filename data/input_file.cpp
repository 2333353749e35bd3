#include "data/input_file.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <new>

#include "base/check.h"

namespace assay {

namespace {

constexpr size_t kStoredBytes = size_t{1} << 18;
// Allows the frames of `zstd --long=31`, which some public corpora use.
constexpr int kLongestWindowLog = 31;

class Gunzip : public Unpacker {
 public:
  Gunzip() {
    constexpr int kGzipHeader = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipHeader) != Z_OK) throw std::bad_alloc();
  }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;
  ~Gunzip() override { inflateEnd(&stream_); }

  std::string unpack(Piece& piece) override {
    if (between_) skip_padding(piece);
    if (between_ && piece.in_bytes == 0) return "";
    if (padded_) return "bytes after the zeros behind its end";
    if (between_) inflateReset(&stream_);
    // zlib does not write to next_in, although its type lacks const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.in));
    stream_.avail_in = static_cast<uInt>(piece.in_bytes);
    stream_.next_out = reinterpret_cast<Bytef*>(piece.out);
    stream_.avail_out = static_cast<uInt>(piece.out_bytes);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    piece = {.in = reinterpret_cast<const char*>(stream_.next_in),
             .in_bytes = stream_.avail_in,
             .out = reinterpret_cast<char*>(stream_.next_out),
             .out_bytes = stream_.avail_out};
    between_ = status == Z_STREAM_END;
    if (status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR) return "";
    return stream_.msg != nullptr ? stream_.msg : zError(status);
  }
  bool between_streams() const override { return between_; }

 private:
  // Tapes and some programs fill the last block with zeros; gzip ignores them too.
  void skip_padding(Piece& piece) {
    for (; piece.in_bytes > 0 && *piece.in == 0; ++piece.in, --piece.in_bytes) padded_ = true;
  }

  z_stream stream_ = {};
  bool between_ = false;
  bool padded_ = false;  // the last stream is over, and zeros follow
};

class Unzstd : public Unpacker {
 public:
  Unzstd() : stream_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
    if (stream_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kLongestWindowLog);
  }

  std::string unpack(Piece& piece) override {
    if (between_ && piece.in_bytes == 0) return "";
    ZSTD_inBuffer in{piece.in, piece.in_bytes, 0};
    ZSTD_outBuffer out{piece.out, piece.out_bytes, 0};
    const size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
    piece = {.in = piece.in + in.pos,
             .in_bytes = in.size - in.pos,
             .out = piece.out + out.pos,
             .out_bytes = out.size - out.pos};
    between_ = left == 0;
    needs_dictionary_ = ZSTD_getErrorCode(left) == ZSTD_error_dictionary_wrong;
    return ZSTD_isError(left) ? ZSTD_getErrorName(left) : "";
  }
  bool between_streams() const override { return between_; }
  bool needs_dictionary() const override { return needs_dictionary_; }

 private:
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> stream_;
  bool between_ = false;
  bool needs_dictionary_ = false;
};

}  // namespace

std::string lower_extension(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

namespace {

std::unique_ptr<Unpacker> make_unpacker(const std::string& path) {
  if (lower_extension(path) == ".gz") return std::make_unique<Gunzip>();
  if (lower_extension(path) == ".zst") return std::make_unique<Unzstd>();
  return nullptr;
}

}  // namespace

std::string unpacked_name(const std::string& path) {
  const std::string extension = lower_extension(path);
  const bool packed = extension == ".gz" || extension == ".zst";
  return packed ? std::filesystem::path(path).replace_extension().string() : path;
}

void throw_unreadable(const std::string& path, const std::string& why, const std::string& meant) {
  throw UserError("cannot read " + path + ": " + why, meant + "check the path and its permissions");
}

InputFile::InputFile(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "rb")), unpacker_(make_unpacker(path)) {
  if (file_ == nullptr) throw_unreadable(path_, strerror(errno));
}

size_t InputFile::read_stored(char* out, size_t bytes) {
  errno = 0;
  const size_t got = std::fread(out, 1, bytes, file_.get());
  if (std::ferror(file_.get())) throw_unreadable(path_, strerror(errno));
  hash_.update(out, got);
  bytes_read_ += static_cast<int64_t>(got);
  return got;
}

size_t InputFile::read(char* out, size_t bytes) {
  if (unpacker_ == nullptr) return read_stored(out, bytes);
  for (;;) {
    if (at_ == stored_.size() && !end_of_file_) {
      stored_.resize(kStoredBytes);
      stored_.resize(read_stored(stored_.data(), kStoredBytes));
      at_ = 0;
      end_of_file_ = stored_.empty();
    }
    const size_t got = unpack_some(out, bytes);
    if (got > 0) return got;
    if (!end_of_file_) continue;
    if (unpacker_->between_streams()) return 0;
    throw UserError(strprintf("%s is cut short: it ends in line %ld of its text", path_.c_str(),
                              static_cast<long>(line_)),
                    "make or download it again");
  }
}

size_t InputFile::unpack_some(char* out, size_t bytes) {
  Unpacker::Piece piece{
      .in = stored_.data() + at_, .in_bytes = stored_.size() - at_, .out = out, .out_bytes = bytes};
  const std::string wrong = unpacker_->unpack(piece);
  at_ = stored_.size() - piece.in_bytes;
  const size_t got = bytes - piece.out_bytes;
  line_ += std::count(out, out + got, '\n');
  if (wrong.empty()) return got;
  if (unpacker_->needs_dictionary()) {
    throw UserError(path_ + " was packed with a dictionary, which is not in the file",
                    "unpack it with that dictionary first: zstd -d -D DICTIONARY " + path_);
  }
  throw UserError(strprintf("%s is damaged: %s, found in line %ld of its text", path_.c_str(),
                            wrong.c_str(), static_cast<long>(line_)),
                  "make or download it again; rename it if it is not compressed");
}

}  // namespace assay
