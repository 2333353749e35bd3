#include "base/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace assay {
namespace {

constexpr int kExitOfSigpipe = 128 + 13;

const char* hint_for(int why) {
  if (why == ENOSPC || why == EDQUOT || why == EFBIG)
    return "free space there, or write the output elsewhere";
  if (why == EBADF) return "standard output is closed: leave out >&-, or redirect it to a file";
  return "write the output elsewhere";
}

}  // namespace

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
