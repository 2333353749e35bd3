// GPT-2's pre-split: cuts text into pieces; no token crosses a piece's end. The alternatives in
// order:
//
//   's 't 're 've 'm 'll 'd  |   ?L+  |   ?N+  |   ?(neither space, L nor N)+
//   |  S+ not before a non-space  |  S+
//
// L, N: Unicode letters and numbers; S: the 25 code points of White_Space; " ?" is one optional
// ASCII space. A byte outside valid UTF-8 is a piece of its own, and the text before it is split as
// if it ended there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

// Number of bytes at the start of `text` that are whole, valid UTF-8 characters.
size_t valid_utf8_prefix(std::string_view text);

// The tables of letters and numbers that this machine's library has: "PCRE2 10.42 2022-12-11,
// Unicode 14.0.0". A character that is newer than them is neither a letter nor a number.
std::string pre_split_tables();

// Iterates over the pieces of a text. Owns PCRE2 match data, so use one per thread.
class PreSplit {
 public:
  PreSplit();
  PreSplit(const PreSplit&) = delete;
  PreSplit& operator=(const PreSplit&) = delete;
  ~PreSplit();

  void start(std::string_view text);
  // Gets the next piece (never empty); false at the end. The pieces in order make up the text.
  bool next(std::string_view& piece);

 private:
  void* match_;
  std::string_view text_;
  size_t at_ = 0;
  size_t run_begin_ = 0;  // the run of valid UTF-8 that contains at_
  size_t run_end_ = 0;
};

}  // namespace assay
