// Held-out text is the first tokens of data.val in the order of its files: of a mixture of sources,
// or of several folders, it may have none of some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/run_data.h"

namespace assay {

// Both empty: some of each is read.
struct UnreadSources {
  std::vector<std::string> sources;  // of a mixture, of those that have validation tokens
  std::vector<std::string> folders;  // others of data.val that have validation tokens
  int64_t tokens_of_all = 0;         // so many tokens would have some of each

  bool none() const { return sources.empty() && folders.empty(); }
};
// Of the first `tokens` validation tokens, in sequences of so many.
UnreadSources unread_sources(const RunData& data, int64_t tokens, int64_t sequence);

// Some of the names of both.
std::string joined_names(const UnreadSources& unread);
// "the held-out text is the first 64 tokens in the order of the files (data.val), which have none
// of web/*.bin, code/*.bin".
std::string unread_text(const UnreadSources& unread, int64_t tokens);
// A hint for it: "--tokens 4096 reads some of each; --shards FILE reads what you name", of the
// options "--tokens " and "--shards FILE".
std::string to_read_all(const UnreadSources& unread, const std::string& tokens_option,
                        const std::string& files_option);

}  // namespace assay
