#include "base/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace assay {

namespace {

std::string vstrprintf(const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  std::string text(static_cast<size_t>(length > 0 ? length : 0), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

}  // namespace

void check_failed(const char* file, int line, const char* condition, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const std::string text = vstrprintf(format, args);
  va_end(args);
  std::fflush(stdout);
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, text.c_str());
  std::abort();
}

std::string strprintf(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = vstrprintf(format, args);
  va_end(args);
  return text;
}

}  // namespace assay
