#include "base/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string_view>

#include "base/check.h"

namespace assay {
namespace {

constexpr int kExitOfSigpipe = 128 + 13;

const char* hint_for(int why) {
  if (why == ENOSPC || why == EDQUOT || why == EFBIG)
    return "free space there, or write the output elsewhere";
  if (why == EBADF) return "standard output is closed: leave out >&-, or redirect it to a file";
  return "write the output elsewhere";
}

// A terminal behind a stream. `half` is a first byte of U+0080 to U+00BF, of which the second
// decides.
struct Guarded {
  int descriptor = -1;
  bool half = false;
};

std::string guarded_text(std::string_view bytes, bool& half) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool of_two = half && byte >= 0x80 && byte < 0xa0;  // U+0080 to U+009F
    const bool control = of_two || (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
    if (half && !of_two) text += '\xc2';
    half = !control && byte == 0xc2;
    if (control) {
      text += strprintf("\\x%02x", unsigned(byte));
    } else if (!half) {
      text += c;
    }
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
  const std::string text = guarded_text({bytes, count}, terminal->half);
  return write_whole(terminal->descriptor, text) ? static_cast<ssize_t>(count) : 0;
}

void guard(std::FILE*& stream, int descriptor, int buffering) {
  if (isatty(descriptor) != 1) return;
  static Guarded terminals[2];
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
