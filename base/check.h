// The two kinds of failure. CHECK is for bugs: it prints the failed condition with the values, and
// aborts. UserError is for what a user can fix (bad flag, missing file): thrown, caught once in
// main, printed as one line "error: ..." and one line "hint: ...", exit 1.
#pragma once

#include <stdexcept>
#include <string>

namespace assay {

class UserError : public std::runtime_error {
 public:
  UserError(const std::string& message, std::string hint)
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

// Prints file:line, the condition and the formatted values on stderr, then aborts.
[[noreturn, gnu::format(printf, 4, 5)]] void check_failed(const char* file, int line,
                                                          const char* condition, const char* format,
                                                          ...);

// printf into a std::string.
[[gnu::format(printf, 1, 2)]] std::string strprintf(const char* format, ...);

}  // namespace assay

#define CHECK(condition, ...)                                             \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::assay::check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (false)
