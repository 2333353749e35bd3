// A file or a folder that is there and cannot be read: a failing disk, no permission, too many open
// files. Who goes on without what is absent or damaged passes this error on: it may be gone when
// the same command is given again, and the result would be another.
#pragma once

#include <errno.h>
#include <string.h>

#include <concepts>
#include <optional>

#include "base/check.h"

namespace assay {

class ReadFailed : public UserError {
 public:
  using UserError::UserError;
};

inline bool is_read_failed(const UserError& error) {
  return dynamic_cast<const ReadFailed*>(&error) != nullptr;
}

// Calls f. Returns its UserError, for who goes on without what f reads; ReadFailed passes.
template <std::invocable F>
std::optional<UserError> problem_of(const F& f) {
  try {
    f();
  } catch (const ReadFailed&) {
    throw;
  } catch (const UserError& error) {
    return error;
  }
  return std::nullopt;
}

inline bool too_many_files(int error) {
  return error == EMFILE || error == ENFILE;
}
inline constexpr const char* kTooManyFiles =
    "raise the limit of open files (ulimit -n 65536; ulimit -Hn shows how far it may go), or close "
    "other programs";

// For a file that could not be opened or read. Plain UserError if it is absent or a folder.
[[noreturn]] inline void throw_unread(const std::string& path, int error, const std::string& hint) {
  const std::string what = "cannot read " + path + ": " + strerror(error);
  if (error == ENOENT || error == ENOTDIR || error == EISDIR) throw UserError(what, hint);
  throw ReadFailed(what, too_many_files(error) ? kTooManyFiles : hint);
}

}  // namespace assay
