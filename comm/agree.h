// What ranks tell each other between steps, over a group for host memory. All of it is collective.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/view.h"
#include "comm/group.h"
#include "comm/layout.h"

namespace assay {

// Everybody's value, in the order of ranks.
template <typename T>
std::vector<T> gather(Group& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(ranks.size()));
  ranks.all_gather({}, all.data(), &mine, sizeof mine);
  return all;
}

// Everybody's text, in the order of ranks.
std::vector<std::string> gather_texts(Group& ranks, std::string_view mine);

// Whether it holds on any rank. ranks may be null: then this is the only one.
bool on_any_rank(Group* ranks, bool mine);

// The first rank's value, on all. ranks may be null.
template <typename T>
T of_first_rank(Group* ranks, const T& mine) {
  struct Held {
    T value;
  };
  return ranks == nullptr ? mine : gather(*ranks, Held{mine}).front().value;
}

// Returns when all are here. ranks may be null.
void wait_for_all(Group* ranks);

// One UserError that all `ranks` of a group have thrown at the same point: they are still in step.
class FailedOnAll : public UserError {
 public:
  FailedOnAll(const std::string& message, const std::string& hint, int ranks)
      : UserError(message, hint), ranks(ranks) {}
  int ranks;
};

// Throws the same FailedOnAll on all ranks if `why` is not empty on any: "rank 2: ...", or without
// a number if all say the same; a plain UserError if one of the hints is kLooksLikeABug.
inline constexpr const char* kLooksLikeABug =
    "this looks like a bug in assay: please report it with the command";
void require_none_failed(Group& ranks, const std::string& why, const std::string& hint);

// The result of `work`, which each rank does alone, e.g. reads a file. A rank that throws alone
// leaves the others waiting for it in their next collective call, so if it throws on any, all throw
// one error, as require_none_failed().
template <typename Work>
auto together(Group& ranks, const Work& work) {
  std::optional<decltype(work())> result;
  std::string why, hint;
  try {
    result = work();
  } catch (const UserError& error) {
    why = error.what();
    hint = error.hint();
  } catch (const std::exception& error) {
    why = error.what();
    hint = kLooksLikeABug;
  }
  require_none_failed(ranks, why, hint);
  return std::move(*result);
}

// The same of work that rank 0 does while the others wait; all have its result.
std::string on_first_rank(Group& ranks, const std::function<std::string()>& work);

// rows (parts, ...) in the host's memory: each rank has the rows of its parts, and gets the others.
template <typename T, int Rank>
void gather_rows(Group& ranks, const Layout& layout, const View<T, Rank>& rows) {
  CHECK(rows.dim[0] == layout.parts && ranks.size() == layout.ranks,
        "gather_rows: %ld rows of %ld parts, %d ranks of %d", long(rows.dim[0]), long(layout.parts),
        ranks.size(), layout.ranks);
  const int64_t own = rows.size() / layout.ranks;
  ranks.all_gather({}, rows.data, rows.data + layout.rank * own, size_t(own) * sizeof(T));
}

}  // namespace assay
