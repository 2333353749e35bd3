#include "data/hash_cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/random.h"

namespace assay {

namespace {

constexpr int64_t kFreshNs = 2'000'000'000;
// Above this size the older half is left out: about 6,000 hashes stay.
constexpr off_t kLargestBytes = off_t{2} << 20;

std::string check_of(const std::string& text) {
  return strprintf("%016" PRIx64, stream_id(text));
}

std::string line_of(const CachedHash& h) {
  const std::string text =
      strprintf("%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s",
                h.stamp.device, h.stamp.inode, h.stamp.bytes, h.stamp.mtime_ns, h.stamp.ctime_ns,
                h.computed_at, h.sha256.c_str());
  return text + " " + check_of(text) + "\n";
}

std::optional<CachedHash> parse_line(const std::string& line) {
  const size_t space = line.rfind(' ');
  if (space == std::string::npos || line.substr(space + 1) != check_of(line.substr(0, space)))
    return std::nullopt;
  CachedHash h;
  std::istringstream in(line);
  in >> h.stamp.device >> h.stamp.inode >> h.stamp.bytes >> h.stamp.mtime_ns >> h.stamp.ctime_ns >>
      h.computed_at >> h.sha256;
  if (!in || h.sha256.size() != 64) return std::nullopt;
  return h;
}

std::vector<CachedHash> read_lines(const std::string& path) {
  std::vector<CachedHash> hashes;
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return hashes;
  try {
    std::istringstream text(read_file(path));
    for (std::string line; std::getline(text, line);)
      if (const auto hash = parse_line(line)) hashes.push_back(*hash);
  } catch (const UserError&) {
  }
  return hashes;
}

// Under the lock of the file; a process that waits for it then appends to the replaced file, which
// loses its lines and nothing else.
void leave_out_older_half(const std::string& path) {
  std::vector<CachedHash> hashes = read_lines(path);
  std::string text;
  for (size_t i = hashes.size() / 2; i < hashes.size(); ++i) text += line_of(hashes[i]);
  write_file_atomic(path, text);
}

}  // namespace

std::string hash_cache_path() {
  const auto named = [](const char* variable) {
    const char* value = getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = named("XDG_CACHE_HOME"); cache.starts_with("/"))
    return cache + "/assay/sha256";
  if (const std::string home = named("HOME"); home.starts_with("/"))
    return home + "/.cache/assay/sha256";
  return "";
}

HashCache::HashCache(std::string path) : path_(std::move(path)), known_(read_lines(path_)) {}

std::optional<CachedHash> HashCache::find(const FileStamp& stamp) const {
  const auto found = std::find_if(known_.rbegin(), known_.rend(),
                                  [&](const CachedHash& h) { return h.stamp == stamp; });
  return found == known_.rend() ? std::nullopt : std::optional(*found);
}

void HashCache::add(const std::vector<CachedHash>& hashes) {
  std::string text;
  for (const CachedHash& h : hashes) {
    const int64_t changed = std::max(h.stamp.ctime_ns, h.stamp.mtime_ns);
    if (changed > h.computed_at * 1'000'000'000 - kFreshNs) continue;
    known_.push_back(h);
    text += line_of(h);
  }
  if (text.empty() || path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (flock(file, LOCK_EX) == 0) {
    // A line that was cut short by a full disk ends here, and spoils no other.
    const off_t end = lseek(file, 0, SEEK_END);
    if (end > 0) text = "\n" + text;
    const bool written = write(file, text.data(), text.size()) == ssize_t(text.size());
    if (written && end > kLargestBytes) try {
        leave_out_older_half(path_);
      } catch (const UserError&) {
      }
  }
  close(file);
}

}  // namespace assay
