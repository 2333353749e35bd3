#include "comm/agree.h"

#include <algorithm>

namespace assay {

std::vector<std::string> gather_texts(Group& ranks, std::string_view mine) {
  const std::vector<uint64_t> sizes = gather(ranks, uint64_t(mine.size()));
  const size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string all(longest * sizes.size(), '\0'), own(mine);
  own.resize(longest);
  ranks.all_gather({}, all.data(), own.data(), longest);
  std::vector<std::string> texts;
  for (size_t r = 0; r < sizes.size(); ++r) texts.push_back(all.substr(r * longest, sizes[r]));
  return texts;
}

void require_none_failed(Group& ranks, const std::string& why, const std::string& hint) {
  if (!on_any_rank(&ranks, !why.empty())) return;
  const std::vector<std::string> all = gather_texts(ranks, why), hints = gather_texts(ranks, hint);
  const auto failed = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(all.begin(), all.end(), failed);
  const auto count = std::count_if(all.begin(), all.end(), failed);
  const bool all_same = std::count(all.begin(), all.end(), *first) == ranks.size();
  std::string message = *first;
  if (!all_same) message = strprintf("rank %ld: ", long(first - all.begin())) + message;
  if (!all_same && count > 1) message += strprintf(" (%ld ranks failed)", long(count));
  const std::string& what_to_do = hints[size_t(first - all.begin())];
  if (std::count(hints.begin(), hints.end(), kLooksLikeABug) > 0) {
    throw UserError(message, what_to_do);
  }
  throw FailedOnAll(message, what_to_do, ranks.size());
}

std::string on_first_rank(Group& ranks, const std::function<std::string()>& work) {
  const std::string mine =
      together(ranks, [&] { return ranks.rank() == 0 ? work() : std::string(); });
  return gather_texts(ranks, mine).front();
}

bool on_any_rank(Group* ranks, bool mine) {
  if (ranks == nullptr) return mine;
  const std::vector<char> all = gather(*ranks, char(mine));
  return std::any_of(all.begin(), all.end(), [](char one) { return one != 0; });
}

void wait_for_all(Group* ranks) {
  if (ranks != nullptr) gather(*ranks, char(0));
}

}  // namespace assay
