#include "data/hash_files.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "base/utc.h"
#include "data/progress.h"
#include "data/sha256.h"

namespace assay {

namespace {

constexpr size_t kMostThreads = 16;  // more wait for the disk or the memory
constexpr std::chrono::milliseconds kQuiet(500);

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : file_(open_regular(path)) {
    if (file_ < 0) throw_unread(path, errno, "check the path and its permissions");
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(file_); }
  int get() const { return file_; }

 private:
  int file_;
};

// Only the inode was written: by a hard link, as a branch makes them, or by what may hide an edit.
bool same_content_times(const FileStamp& a, FileStamp b) {
  b.ctime_ns = a.ctime_ns;
  return a == b;
}

HashedFile hash_file(const std::string& path, const std::function<void(int64_t)>& on_bytes) {
  const OpenFile file(path);
  constexpr int kTries = 5;
  for (int tried = 1;; ++tried) {
    HashedFile hashed{
        .stamp = stamp_of(file.get(), path), .sha256 = "", .computed_at = time(nullptr)};
    hashed.sha256 = sha256_of(file.get(), path, tried == 1 ? on_bytes : nullptr);
    const FileStamp now = stamp_of(file.get(), path);
    if (now == hashed.stamp) return hashed;
    if (tried == kTries || !same_content_times(hashed.stamp, now))
      throw UserError(path + " changed while it was hashed", "wait until it is written");
  }
}

// Files that are not in the cache, the largest first, so that the threads end at about the same
// time.
class Work {
 public:
  Work(std::vector<std::string> paths, const HashedFiles& stamps) : paths_(std::move(paths)) {
    std::sort(paths_.begin(), paths_.end(), [&](const std::string& a, const std::string& b) {
      const int64_t of_a = stamps.at(a).stamp.bytes, of_b = stamps.at(b).stamp.bytes;
      return of_a != of_b ? of_a > of_b : a < b;
    });
    for (const std::string& path : paths_) bytes_ += stamps.at(path).stamp.bytes;
  }

  void run(HashedFiles& results) {
    Progress progress("hash", bytes_, {}, kQuiet);
    std::vector<std::thread> threads;
    const size_t most = std::min<size_t>(size_t(usable_cores()), kMostThreads);
    for (size_t i = 1; i < std::min(most, paths_.size()); ++i)
      threads.emplace_back([&] { work(results, progress); });
    work(results, progress);
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void work(HashedFiles& results, Progress& progress) {
    for (size_t i = next_++; i < paths_.size() && !failed_; i = next_++) try {
        const HashedFile hashed = hash_file(paths_[i], [&](int64_t bytes) {
          done_ += bytes;
          const std::unique_lock lock(mutex_, std::try_to_lock);
          if (lock) progress.update(done_);
        });
        const std::lock_guard lock(mutex_);
        results[paths_[i]] = hashed;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        failed_ = true;
      }
  }

  std::vector<std::string> paths_;
  int64_t bytes_ = 0;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

std::string HashedFile::how() const {
  return cached ? "cached, computed " + utc_text(computed_at) : "computed";
}

HashedFiles hash_files(const std::vector<std::string>& paths, UseCache use) {
  HashCache cache(use == UseCache::kYes ? hash_cache_path() : "");
  HashedFiles files;
  std::vector<std::string> unknown;
  for (const std::string& path : paths) {
    if (files.contains(path)) continue;
    HashedFile& file = files[path];
    file.stamp = stamp_of(path);
    if (const auto known = cache.find(file.stamp)) {
      file.sha256 = known->sha256;
      file.computed_at = known->computed_at;
      file.cached = true;
    } else {
      unknown.push_back(path);
    }
  }
  Work(unknown, files).run(files);
  std::vector<CachedHash> computed;
  for (const std::string& path : unknown) {
    const HashedFile& file = files[path];
    computed.push_back(
        {.stamp = file.stamp, .sha256 = file.sha256, .computed_at = file.computed_at});
  }
  cache.add(computed);
  return files;
}

std::string hashed_text(const HashedFiles& files, double seconds) {
  double all = 0, computed = 0;
  size_t cached = 0;
  for (const auto& [path, file] : files) {
    const double mb = 1e-6 * static_cast<double>(file.stamp.bytes);
    all += mb;
    computed += file.cached ? 0 : mb;
    cached += file.cached;
  }
  std::string text = strprintf("data: %zu files, %.1f MB: SHA-256 ", files.size(), all);
  if (cached < files.size())
    text += strprintf("computed (%.0f MB/s)", computed / std::max(seconds, 1e-3));
  if (cached == files.size()) return text + "of unchanged files from the cache";
  return cached == 0 ? text : text + strprintf(", %zu unchanged files from the cache", cached);
}

}  // namespace assay
