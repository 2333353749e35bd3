// Simulates a full disk: during its lifetime no file of this process grows past `bytes`.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "base/check.h"

namespace assay {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = signal(SIGXFSZ, SIG_IGN);  // so that the write fails with EFBIG
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    const int ok = setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(ok == 0, "setrlimit returned %d", ok);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

}  // namespace assay
