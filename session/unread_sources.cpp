#include "session/unread_sources.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/check.h"
#include "base/math.h"
#include "base/some_names.h"
#include "data/shard.h"

namespace assay {
namespace {

std::string folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? "." : folder.lexically_normal().string();
}

}  // namespace

UnreadSources unread_sources(const RunData& data, int64_t tokens, int64_t sequence) {
  // By file and by folder: the sequences that are read before its first.
  std::map<std::string, int64_t> files, folders;
  int64_t sequences = 0;
  for (const std::string& file : data.val) {
    const int64_t own = std::max<int64_t>(0, Shard(file).tokens() - 1) / sequence;
    if (own > 0) {
      files.emplace(file, sequences);
      folders.emplace(folder_of(file), sequences);
    }
    sequences += own;
  }
  UnreadSources unread;
  const int64_t read = ceil_div(tokens, sequence);
  int64_t last = -1;  // the largest of them of what is not read
  std::set<std::string> of_sources;
  for (const SourceShards& source : data.source_val) {
    int64_t first = sequences;
    for (const std::string& file : source.files) {
      const auto found = files.find(file);
      if (found != files.end()) first = std::min(first, found->second);
    }
    if (first < read) continue;
    unread.sources.push_back(source.name);
    last = std::max(last, first);
    for (const std::string& file : source.files) of_sources.insert(folder_of(file));
  }
  for (const auto& [folder, first] : folders) {
    if (first < read || of_sources.contains(folder)) continue;
    unread.folders.push_back(folder);
    last = std::max(last, first);
  }
  unread.tokens_of_all = (last + 1) * sequence;
  return unread;
}

std::string joined_names(const UnreadSources& unread) {
  const std::string sources = some_names(unread.sources), folders = some_names(unread.folders);
  return sources + (sources.empty() || folders.empty() ? "" : ", ") + folders;
}

std::string unread_text(const UnreadSources& unread, int64_t tokens) {
  return strprintf(
      "the held-out text is the first %ld tokens in the order of the files (data.val), which have "
      "none of %s",
      static_cast<long>(tokens), joined_names(unread).c_str());
}

std::string to_read_all(const UnreadSources& unread, const std::string& tokens_option,
                        const std::string& files_option) {
  return tokens_option + std::to_string(unread.tokens_of_all) + " reads some of each; " +
         files_option + " reads what you name";
}

}  // namespace assay
