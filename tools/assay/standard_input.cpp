#include "tools/assay/standard_input.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace assay {

bool standard_input_is_piped() {
  struct stat status = {};
  return fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

std::string read_standard_input(const std::string& while_waiting) {
  constexpr int kPatienceMs = 2000;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (!while_waiting.empty() && poll(&input, 1, kPatienceMs) == 0) {
    std::fprintf(stderr, "%s\n", while_waiting.c_str());
  }
  std::string text;
  char bytes[1 << 16];
  for (;;) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw UserError(std::string("cannot read standard input: ") + std::strerror(errno),
                      "give prompts by --prompt or --prompts FILE");
    }
    text.append(bytes, size_t(count));
  }
}

}  // namespace assay
