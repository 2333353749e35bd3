// What each rank said of itself last, and the file in which rank 0 keeps it. Whoever started the
// ranks reads it there: a rank that was killed says nothing more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bounded_thread.h"

namespace assay {

struct LastWord {
  int rank = 0;
  std::string me;    // names its process: "node07, pid 4242"
  std::string what;  // it does
  int64_t step = 0;
  uint64_t call = 0;     // of groups, how far it has come: comm/call_order.h
  bool slow = false;     // it does something that may take long
  bool reading = false;  // it waits for a disk
  bool leaving = false;  // it is through, and waits for the others
  double age_s = -1;     // since rank 0 heard it; below 0: it never has
};

std::string rank_name(const LastWord& word);  // rank 3 (node07, pid 4242)
std::string said(const LastWord& word);       // step 412, exchange of gradients

// Without control characters, which would break the lines of a file or of a message; at most `most`
// bytes, cut between two characters of UTF-8.
std::string one_line(std::string_view text, size_t most);

// A line per rank under a heading: rank, age_s, step, call, working | slow | leaving, me, what,
// between tabs.
std::string format_last_words(const std::vector<LastWord>& words);
// Lines that are not complete are left out.
std::vector<LastWord> parse_last_words(std::string_view text);

std::string last_words_path(const std::string& folder);  // folder/ranks/last.txt
// Of the run in this folder; empty if there is no such file.
std::vector<LastWord> read_last_words(const std::string& folder);

// Writes the file from a thread of its own: a disk that is busy with a checkpoint may take longer
// than ranks may be silent. A file that cannot be written costs the last words, not the run.
class LastWordsFile {
 public:
  explicit LastWordsFile(const std::string& folder);  // makes folder/ranks
  ~LastWordsFile();                                   // the last text is written, in 1 s or never
  LastWordsFile(const LastWordsFile&) = delete;
  LastWordsFile& operator=(const LastWordsFile&) = delete;

  // The newest text counts; does not wait.
  void put(std::vector<LastWord> words);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::optional<BoundedThread> thread_;
};

}  // namespace assay
