// GPT-2's pre-split: text becomes pieces, and no token crosses a piece's end. Alternatives in
// order:
//
//   's 't 're 've 'm 'll 'd  |  ?L+  |  ?N+  |  ?(neither space, L nor N)+  |  S+ not before a non-space  |  S+
//
// L, N: Unicode letters and numbers; S: the 25 code points of White_Space; " ?" is one optional
// ASCII space. A byte that is no part of valid UTF-8 is a piece of its own, and text ends before
// it.
#pragma once

#include <cstddef>
#include <string_view>

namespace assay {

// Bytes at the start of `text` that are whole, valid UTF-8 characters.
size_t valid_utf8_prefix(std::string_view text);

// Runs over one text; holds PCRE2's match data, so one object a thread.
class PreSplit {
 public:
  PreSplit();
  PreSplit(const PreSplit&) = delete;
  PreSplit& operator=(const PreSplit&) = delete;
  ~PreSplit();

  void start(std::string_view text);
  // The next piece (never empty), or false at the end. The pieces in order are the text.
  bool next(std::string_view& piece);

 private:
  void* match_;
  std::string_view text_;
  size_t at_ = 0;
  size_t run_begin_ = 0;  // the valid run that holds at_
  size_t run_end_ = 0;
};

}  // namespace assay
