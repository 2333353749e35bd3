#include "data/document_shuffle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/random.h"
#include "base/read_failed.h"

namespace assay {

namespace {

constexpr int kBucketBits = 7;
constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr uint64_t kStream = stream_id("data.prepare.shuffle");

// A file without a name, in the folder.
int open_nameless(const std::string& folder) {
  const int nameless = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  if (nameless >= 0) return nameless;
  // A file system without O_TMPFILE.
  std::string name = folder + "/.shuffle-XXXXXX";
  const int file = mkostemp(name.data(), O_CLOEXEC);
  const int error = errno;
  if (file < 0)
    throw UserError(strprintf("cannot write in %s: %s", folder.c_str(), strerror(error)),
                    too_many_files(error) ? kTooManyFiles : "check the folder and its permissions");
  unlink(name.c_str());
  return file;
}

}  // namespace

DocumentShuffle::DocumentShuffle(std::string folder, uint64_t seed)
    : folder_(std::move(folder)), seed_(seed), buckets_(size_t{1} << kBucketBits) {}

DocumentShuffle::~DocumentShuffle() {
  for (const Bucket& bucket : buckets_)
    if (bucket.file >= 0) close(bucket.file);
}

void DocumentShuffle::add_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes) {
  const auto words =
      random_block({.seed = seed_, .stream = kStream}, static_cast<uint64_t>(documents_++));
  number_ = uint64_t{words[0]} << 32 | words[1];
  append({.number = number_,
          .document = documents_,
          .tokens = tokens.size(),
          .text_bytes = text_bytes,
          .split = split,
          .begins = 1},
         tokens);
}

void DocumentShuffle::continue_document(Split split, View<const int32_t, 1> tokens,
                                        int64_t text_bytes) {
  append({.number = number_,
          .document = documents_,
          .tokens = tokens.size(),
          .text_bytes = text_bytes,
          .split = split},
         tokens);
}

void DocumentShuffle::append(const Header& header, View<const int32_t, 1> tokens) {
  Bucket& bucket = buckets_[header.number >> (64 - kBucketBits)];
  put(bucket, &header, sizeof header);
  put(bucket, tokens.data, tokens.bytes());
  tokens_ += tokens.size();
}

void DocumentShuffle::put(Bucket& bucket, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  bucket.buffered.insert(bucket.buffered.end(), from, from + bytes);
  if (bucket.buffered.size() >= kBufferBytes) flush(bucket);
}

void DocumentShuffle::flush(Bucket& bucket) {
  if (bucket.buffered.empty()) return;
  if (bucket.file < 0) bucket.file = open_nameless(folder_);
  for (size_t at = 0; at < bucket.buffered.size();) {
    const ssize_t put = pwrite(bucket.file, bucket.buffered.data() + at,
                               bucket.buffered.size() - at, static_cast<off_t>(bucket.bytes));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      throw UserError(strprintf("cannot write temporary files in %s: %s (after %ld bytes)",
                                folder_.c_str(), strerror(errno), static_cast<long>(bucket.bytes)),
                      "--shuffle needs 4 bytes per token there beside the shards (df -h " +
                          folder_ + "); nothing was replaced");
    at += static_cast<size_t>(put);
    bucket.bytes += put;
  }
  bucket.buffered.clear();
}

void DocumentShuffle::get(const Bucket& bucket, int64_t at, void* data, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(bucket.file, static_cast<char*>(data) + done, bytes - done,
                              static_cast<off_t>(at) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw UserError(strprintf("cannot read temporary files in %s: %s", folder_.c_str(),
                                got == 0 ? "cut short" : strerror(errno)),
                      "check the disk");
    done += static_cast<size_t>(got);
  }
}

void DocumentShuffle::write_bucket(Bucket& bucket, CorpusWriter& writer,
                                   const std::function<void(int64_t)>& on_tokens) {
  flush(bucket);
  struct Place {
    uint64_t number;
    int64_t document;
    int64_t at;
  };
  std::vector<Place> places;
  Header header;
  for (int64_t at = 0; at < bucket.bytes;) {
    get(bucket, at, &header, sizeof header);
    places.push_back({header.number, header.document, at});
    at += static_cast<int64_t>(sizeof header) + header.tokens * int64_t{sizeof(int32_t)};
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.number, a.document, a.at) < std::tie(b.number, b.document, b.at);
  });
  std::vector<int32_t> tokens;
  for (const Place& place : places) {
    get(bucket, place.at, &header, sizeof header);
    tokens.resize(static_cast<size_t>(header.tokens));
    get(bucket, place.at + int64_t{sizeof header}, tokens.data(), tokens.size() * sizeof(int32_t));
    const View<const int32_t, 1> view{tokens.data(), {header.tokens}};
    if (header.begins == 1) {
      writer.add_document(header.split, view, header.text_bytes);
    } else {
      writer.continue_document(header.split, view, header.text_bytes);
    }
    on_tokens(written_ += header.tokens);
  }
  if (bucket.file >= 0) close(bucket.file);
  bucket = {};
}

void DocumentShuffle::write_to(CorpusWriter& writer,
                               const std::function<void(int64_t)>& on_tokens) {
  for (Bucket& bucket : buckets_) write_bucket(bucket, writer, on_tokens);
}

}  // namespace assay
