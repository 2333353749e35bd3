#include "base/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/text_order.h"

namespace assay {
namespace {

constexpr int kExitOfSigpipe = 128 + 13;

const char* hint_for(int why) {
  if (why == ENOSPC || why == EDQUOT || why == EFBIG)
    return "free space there, or write the output elsewhere";
  if (why == EBADF) return "standard output is closed: leave out >&-, or redirect it to a file";
  return "write the output elsewhere";
}

// A terminal behind a stream. `begun` are the first bytes of a character whose next ones decide.
struct Guarded {
  int descriptor = -1;
  std::string begun;
};

// Of more than one byte.
bool is_long_control(unsigned code) {
  return (code >= 0x80 && code <= 0x9f) || turns_text(code);
}

// Whether more bytes decide if this is such a character.
bool begins_control(std::string_view bytes) {
  if (bytes.size() == 1) return bytes == "\xc2" || bytes == "\xd8" || bytes == "\xe2";
  return bytes.size() == 2 && bytes.starts_with('\xe2');
}

// Of two or three bytes in UTF-8.
unsigned code_of(std::string_view bytes) {
  unsigned code = static_cast<unsigned char>(bytes[0]) & (bytes.size() == 2 ? 0x1f : 0x0f);
  for (const char c : bytes.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

std::string guarded_text(std::string_view bytes, std::string& begun) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool goes_on = byte >= 0x80 && byte < 0xc0;
    if (!goes_on) text += std::exchange(begun, "");  // it was no whole character
    begun += c;
    if (begins_control(begun)) continue;
    const bool is_short = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    const unsigned code = begun.size() == 1 ? byte : code_of(begun);
    if (is_short || (begun.size() > 1 && is_long_control(code))) {
      text += strprintf(code < 0x100 ? "\\x%02x" : "\\u%04x", code);
    } else {
      text += begun;
    }
    begun.clear();
  }
  return text;
}

bool write_whole(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

ssize_t write_guarded(void* cookie, const char* bytes, size_t count) {
  auto* const terminal = static_cast<Guarded*>(cookie);
  const std::string text = guarded_text({bytes, count}, terminal->begun);
  return write_whole(terminal->descriptor, text) ? static_cast<ssize_t>(count) : 0;
}

void guard(std::FILE*& stream, int descriptor, int buffering) {
  if (isatty(descriptor) != 1) return;
  static auto* const terminals = new Guarded[2];  // the last flush is after all destructors
  Guarded* const terminal = &terminals[descriptor == STDERR_FILENO ? 1 : 0];
  terminal->descriptor = descriptor;
  std::FILE* const guarded = fopencookie(
      terminal, "w", {.read = nullptr, .write = write_guarded, .seek = nullptr, .close = nullptr});
  if (guarded == nullptr) return;
  std::setvbuf(guarded, nullptr, buffering, BUFSIZ);
  std::fflush(stream);
  stream = guarded;
}

}  // namespace

bool can_move_cursor(int descriptor) {
  const char* const term = std::getenv("TERM");
  return isatty(descriptor) == 1 && term != nullptr && *term != '\0' &&
         std::string_view(term) != "dumb";
}

void guard_terminals() {
  guard(stdout, STDOUT_FILENO, _IOLBF);
  guard(stderr, STDERR_FILENO, _IONBF);
}

void control_terminal(std::FILE* stream, const std::string& sequence) {
  std::fflush(stream);
  write_whole(stream == stderr ? STDERR_FILENO : STDOUT_FILENO, sequence);
}

void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) != -1) continue;
    // open() returns the lowest number that is free: this one.
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != -1 && opened != descriptor) close(opened);
  }
}

int finish_standard_output(int exit_code) {
  std::cout.flush();
  bool lost = !std::cout.good() || std::ferror(stdout) != 0;
  errno = 0;
  lost |= std::fflush(stdout) != 0;
  int why = errno;
  if (lost && why == 0) {
    // An earlier write failed, and its reason is gone. One more byte, after output that is broken
    // already, fails for the same reason.
    std::clearerr(stdout);
    std::putchar('\n');
    if (std::fflush(stdout) != 0) why = errno;
  }
  if (!lost) return exit_code;
  if (why == EPIPE) return exit_code != 0 ? exit_code : kExitOfSigpipe;
  std::fprintf(stderr, "error: cannot write to standard output: %s\nhint: %s\n",
               why != 0 ? std::strerror(why) : "a part of it was lost", hint_for(why));
  return exit_code != 0 ? exit_code : 1;
}

}  // namespace assay
