// Held-out text is the first tokens of data.val in the order of its files: of a mixture of sources
// it may have none of some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session/run_data.h"

namespace assay {

struct UnreadSources {
  std::vector<std::string> names;  // of sources that have validation tokens; empty: all are read
  int64_t tokens_of_all = 0;       // so many tokens would have some of each
};
// Of the first `tokens` validation tokens, in sequences of so many.
UnreadSources unread_sources(const RunData& data, int64_t tokens, int64_t sequence);

// "the held-out text is the first 64 tokens in the order of the files (data.val), which have none
// of web/*.bin, code/*.bin".
std::string unread_text(const UnreadSources& unread, int64_t tokens);
std::string joined_names(const UnreadSources& unread);

}  // namespace assay
