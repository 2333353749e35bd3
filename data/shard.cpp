#include "data/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/read_failed.h"
#include "data/file_kind.h"
#include "data/sha256.h"

namespace assay {

namespace {

struct Format {
  int32_t magic;
  int32_t version;
  int token_bytes;
};
constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

constexpr int kHeaderInts = 256;
static_assert(kHeaderInts * sizeof(int32_t) == kShardHeaderBytes);

const char* const kGiveShards = "give shards; text becomes shards with: assay data prepare";
const char* const kRestore =
    "put the file back as it was and run the same command again, or train on it in another run";
const char* const kRebuild = "download it again, or write it again with: assay data prepare";

[[noreturn]] void throw_large_id(const std::string& where, uint32_t id, uint32_t largest,
                                 IdLimit limit) {
  const std::string has = strprintf("%s has id %u, the ", where.c_str(), id);
  if (limit.of == IdLimit::Of::kTokenizer) {
    throw UserError(
        has + strprintf("tokenizer has %ld tokens: it is not that of this shard",
                        static_cast<long>(limit.ids)),
        "give the tokenizer that made the shards (data.tokenizer), or if the ids mean the same, "
        "skip the check: --set data.check_tokenizer=false");
  }
  throw UserError(has + strprintf("vocabulary has %ld", static_cast<long>(limit.ids)),
                  "use the shards of this tokenizer, or set model.vocab_size to at least " +
                      std::to_string(int64_t{largest} + 1));
}

// Reads `bytes` bytes at `offset`; false if the file ends before.
bool read_exactly(int file, const std::string& path, int64_t offset, void* out, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file, static_cast<char*>(out) + done, bytes - done,
                              static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw_unread(path, errno, errno == EISDIR ? "give a shard, not a folder" : "check the disk");
    if (got == 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

Shard::Shard(std::string path) : path_(std::move(path)) {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0)
    throw_unread(path_, errno, "check the path, or write shards with: assay data prepare");
  try {
    stamp_ = stamp_of(file_, path_);
    int32_t header[kHeaderInts] = {};
    const bool whole = read_exactly(file_, path_, 0, header, sizeof header);
    const int64_t begin_bytes = std::min<int64_t>(stamp_.bytes, sizeof header);
    const std::string seems = seems_to_be({reinterpret_cast<const char*>(header),
                                           static_cast<size_t>(std::max<int64_t>(0, begin_bytes))});
    if (!whole)
      throw UserError(
          strprintf("%s is not a shard: %ld bytes, but the header alone has %ld", path_.c_str(),
                    static_cast<long>(stamp_.bytes), static_cast<long>(kShardHeaderBytes)) +
              seems,
          seems.empty() ? kRebuild : kGiveShards);
    const auto format = std::find_if(std::begin(kFormats), std::end(kFormats),
                                     [&](const Format& f) { return f.magic == header[0]; });
    if (format == std::end(kFormats))
      throw UserError(strprintf("%s is not a shard: magic %d, expected %d or %d", path_.c_str(),
                                header[0], kFormats[0].magic, kFormats[1].magic) +
                          seems,
                      kGiveShards);
    if (header[1] != format->version)
      throw UserError(strprintf("%s has version %d, expected %d for magic %d", path_.c_str(),
                                header[1], format->version, format->magic),
                      kRebuild);
    tokens_ = header[2];
    token_bytes_ = format->token_bytes;
    const int64_t want = kShardHeaderBytes + tokens_ * token_bytes_;
    if (tokens_ < 0 || stamp_.bytes != want)
      throw UserError(strprintf("%s has %ld bytes, its header says %ld tokens = %ld bytes",
                                path_.c_str(), static_cast<long>(stamp_.bytes),
                                static_cast<long>(tokens_), static_cast<long>(want)),
                      kRebuild);
  } catch (...) {
    close(file_);
    throw;
  }
}

Shard::Shard(Shard&& other) noexcept
    : path_(std::move(other.path_)),
      tokens_(other.tokens_),
      token_bytes_(other.token_bytes_),
      file_(std::exchange(other.file_, -1)),
      stamp_(other.stamp_),
      sha256_(std::move(other.sha256_)) {}

Shard::~Shard() {
  if (file_ >= 0) close(file_);
}

void Shard::expect(const HashedFile& hashed) {
  sha256_ = hashed.sha256;
  stamp_ = hashed.stamp;
  require_unchanged();
}

void Shard::require_unchanged() const {
  const FileStamp now = stamp_of(file_, path_);
  if (now == stamp_) return;
  if (sha256_.empty()) {
    if (now.bytes == stamp_.bytes && now.mtime_ns == stamp_.mtime_ns) return;
    throw UserError(path_ + " changed while it was read", kRestore);
  }
  const std::string sha256 = sha256_of(file_, path_);
  if (sha256 != sha256_)
    throw UserError(strprintf("%s changed while the run reads it: SHA-256 was %.16s, is %.16s",
                              path_.c_str(), sha256_.c_str(), sha256.c_str()),
                    kRestore);
  stamp_ = now;
}

void Shard::read(int64_t begin, IdLimit limit, View<int32_t, 1> out, View<std::byte, 1> raw) const {
  const int64_t count = out.size();
  CHECK(begin >= 0 && begin + count <= tokens_, "%s: tokens %ld to %ld of %ld", path_.c_str(),
        static_cast<long>(begin), static_cast<long>(begin + count), static_cast<long>(tokens_));
  CHECK(raw.size() >= count * token_bytes_, "%s: scratch of %ld bytes for %ld tokens",
        path_.c_str(), static_cast<long>(raw.size()), static_cast<long>(count));
  const bool whole = read_exactly(file_, path_, kShardHeaderBytes + begin * token_bytes_, raw.data,
                                  static_cast<size_t>(count * token_bytes_));
  if (!whole)
    throw UserError(strprintf("%s was cut short while it was read", path_.c_str()), kRestore);
  require_unchanged();
  // Compared as unsigned, so that uint32 ids above 2^31 are caught too.
  uint32_t largest = 0;
  const auto widen = [&]<typename T>(const T* from) {
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max<uint32_t>(largest, from[i]);
      out[i] = static_cast<int32_t>(from[i]);
    }
  };
  if (token_bytes_ == 2) widen(reinterpret_cast<const uint16_t*>(raw.data));
  if (token_bytes_ == 4) widen(reinterpret_cast<const uint32_t*>(raw.data));
  if (largest < limit.ids) return;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t id = static_cast<uint32_t>(out[i]);
    if (id < limit.ids) continue;
    throw_large_id(strprintf("%s: token %ld", path_.c_str(), static_cast<long>(begin + i)), id,
                   largest, limit);
  }
}

void check_tokens(const Shard& shard, IdLimit limit) {
  for_each_piece(shard, limit, [](int64_t, View<const int32_t, 1>) {});
}

ShardWriter::ShardWriter(const std::string& path, int64_t vocab_size)
    : file_(path), vocab_size_(vocab_size), token_bytes_(vocab_size <= 65535 ? 2 : 4) {
  const int32_t header[kHeaderInts] = {};
  file_.write(header, sizeof header);
}

void ShardWriter::append(View<const int32_t, 1> tokens) {
  CHECK(hash_.empty(), "%s: tokens after seal()", path().c_str());
  for (int64_t i = 0; i < tokens.size(); ++i)
    CHECK(tokens[i] >= 0 && tokens[i] < vocab_size_, "%s: id %d, the vocabulary has %ld",
          file_.path().c_str(), tokens[i], static_cast<long>(vocab_size_));
  tokens_ += tokens.size();
  CHECK(tokens_ <= INT32_MAX, "%s: %ld tokens do not fit the header", file_.path().c_str(),
        static_cast<long>(tokens_));
  if (token_bytes_ == 4) return file_.write(tokens.data, tokens.bytes());
  narrow_.assign(tokens.data, tokens.data + tokens.size());
  file_.write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
}

std::string ShardWriter::seal() {
  if (!hash_.empty()) return hash_;
  const Format& format = kFormats[token_bytes_ == 2 ? 0 : 1];
  const int32_t start[3] = {format.magic, format.version, static_cast<int32_t>(tokens_)};
  file_.write_at(0, start, sizeof start);
  file_.sync();
  return hash_ = sha256_file(file_.part_path());
}

void ShardWriter::close_part() {
  seal();
  file_.close_part();
  std::vector<uint16_t>().swap(narrow_);
}

std::string ShardWriter::commit() {
  seal();
  file_.commit();
  return hash_;
}

std::vector<std::string> find_shards(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = paths_matching(pattern);
    files.insert(files.end(), found.begin(), found.end());
    if (found.empty())
      throw UserError(strprintf("no shard matches %s", pattern.c_str()),
                      "check the path or pattern; shards are written by: assay data prepare");
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace assay
