#include "comm/last_words.h"

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>

#include "base/check.h"

namespace assay {

namespace {

constexpr std::string_view kHeading = "# rank\tage_s\tstep\tcall\tstate\tme\twhat\n";
constexpr size_t kMostWordBytes = 200;

template <typename T>
bool parse(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<LastWord> parse_line(std::string_view line) {
  const std::vector<std::string_view> field = split(line, '\t');
  if (field.size() != 7) return std::nullopt;
  LastWord word;
  if (!parse(field[0], word.rank) || word.rank < 0 || !parse(field[1], word.age_s) ||
      !parse(field[2], word.step) || !parse(field[3], word.call)) {
    return std::nullopt;
  }
  word.slow = field[4] == "slow";
  word.leaving = field[4] == "leaving";
  if (!word.slow && !word.leaving && field[4] != "working") return std::nullopt;
  word.me = field[5];
  word.what = field[6];
  return word;
}

// Without fsync: the file must outlive processes, not the machine.
void replace_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  const std::string part = path + ".part";
  std::error_code error;
  if (fs::is_symlink(fs::path(path).parent_path(), error)) return;  // RunDir refuses such a folder
  fs::remove(part, error);                                          // a link there is not followed
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) fs::rename(part, path, error);
}

}  // namespace

std::string rank_name(const LastWord& word) {
  const std::string name = "rank " + std::to_string(word.rank);
  return word.me.empty() ? name : name + " (" + word.me + ")";
}

std::string said(const LastWord& word) {
  if (word.age_s < 0) return "nothing yet";
  if (word.leaving) return "the end of its run";
  return "step " + std::to_string(word.step) + ", " + word.what;
}

std::string one_line(std::string_view text, size_t most) {
  size_t size = std::min(text.size(), most);
  while (size > 0 && size < text.size() && (uint8_t(text[size]) & 0xC0) == 0x80) --size;
  std::string line(text.substr(0, size));
  for (char& c : line) {
    if (uint8_t(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

std::string format_last_words(const std::vector<LastWord>& words) {
  std::string text(kHeading);
  for (const LastWord& w : words) {
    const char* const state = w.leaving ? "leaving" : w.slow ? "slow" : "working";
    text += strprintf("%d\t%.1f\t%lld\t%llu\t%s\t", w.rank, w.age_s, static_cast<long long>(w.step),
                      static_cast<unsigned long long>(w.call), state);
    text += one_line(w.me, kMostWordBytes) + "\t" + one_line(w.what, kMostWordBytes) + "\n";
  }
  return text;
}

std::vector<LastWord> parse_last_words(std::string_view text) {
  std::vector<LastWord> words;
  // What follows the last end of line is a cut line.
  for (std::string_view line : split(text.substr(0, text.rfind('\n') + 1), '\n')) {
    if (auto word = parse_line(line)) words.push_back(std::move(*word));
  }
  return words;
}

std::string last_words_path(const std::string& folder) {
  return folder + "/ranks/last.txt";
}

std::vector<LastWord> read_last_words(const std::string& folder) {
  const std::string path = last_words_path(folder);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};  // a pipe would wait
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return parse_last_words(text.str());
}

struct LastWordsFile::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::vector<LastWord>> newest;  // not yet written
  bool ends = false;
};

LastWordsFile::LastWordsFile(const std::string& folder) : shared_(std::make_shared<Shared>()) {
  thread_.emplace([shared = shared_, path = last_words_path(folder)] {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    std::unique_lock lock(shared->mutex);
    while (true) {
      shared->changed.wait(lock, [&] { return shared->newest || shared->ends; });
      if (!shared->newest) return;
      const std::vector<LastWord> words = std::move(*shared->newest);
      shared->newest.reset();
      lock.unlock();
      replace_file(path, format_last_words(words));
      lock.lock();
    }
  });
}

LastWordsFile::~LastWordsFile() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ends = true;
  }
  shared_->changed.notify_all();
  thread_->end_within(std::chrono::seconds(1));
}

void LastWordsFile::put(std::vector<LastWord> words) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->newest = std::move(words);
  }
  shared_->changed.notify_all();
}

}  // namespace assay
