#include "session/unread_sources.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/math.h"
#include "data/shard.h"

namespace assay {

UnreadSources unread_sources(const RunData& data, int64_t tokens, int64_t sequence) {
  std::map<std::string, int64_t> before;  // by file: the sequences that are read before its first
  int64_t sequences = 0;
  for (const std::string& file : data.val) {
    const int64_t own = std::max<int64_t>(0, Shard(file).tokens() - 1) / sequence;
    if (own > 0) before.emplace(file, sequences);
    sequences += own;
  }
  UnreadSources unread;
  for (const SourceShards& source : data.source_val) {
    int64_t first = sequences;
    for (const std::string& file : source.files) {
      const auto found = before.find(file);
      if (found != before.end()) first = std::min(first, found->second);
    }
    if (first < ceil_div(tokens, sequence)) continue;
    unread.names.push_back(source.name);
    unread.tokens_of_all = std::max(unread.tokens_of_all, (first + 1) * sequence);
  }
  return unread;
}

std::string joined_names(const UnreadSources& unread) {
  std::string all;
  for (const std::string& name : unread.names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::string unread_text(const UnreadSources& unread, int64_t tokens) {
  return strprintf(
      "the held-out text is the first %ld tokens in the order of the files (data.val), which have "
      "none of %s",
      static_cast<long>(tokens), joined_names(unread).c_str());
}

}  // namespace assay
