#include "tools/assay/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"

namespace assay {
namespace {

// Runs in the child between fork and exec. The parent has threads, so only async-signal-safe calls
// are allowed here.
[[noreturn]] void become(char* const* argv, int input, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);  // the parent ended before prctl()
  setpgid(0, 0);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(kThisProgram, argv);
  constexpr char kMessage[] = "error: cannot start /proc/self/exe\nhint: is /proc mounted?\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kCannotStart);
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

// Uses fork because posix_spawn cannot set PR_SET_PDEATHSIG.
Child::Child(const std::vector<std::string>& arguments, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  require_no_link(log);
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output =
      open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (input < 0 || output < 0) {
    const std::string why = strerror(errno);
    if (input >= 0) close(input);
    if (output >= 0) close(output);
    throw UserError("cannot write " + log + ": " + why,
                    "check that the folder exists and is writable");
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(argv.data(), input, output, parent);
  const std::string why = strerror(errno);
  close(input);
  close(output);
  if (pid_ < 0) {
    throw UserError("cannot start another process: " + why,
                    "check the limit on processes (ulimit -u)");
  }
}

Child::~Child() {
  if (code_) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> Child::ended() {
  int status = 0;
  if (!code_ && waitpid(pid_, &status, WNOHANG) == pid_) code_ = exit_code(status);
  return code_;
}

void Child::send(int signal) const {
  if (!code_) kill(pid_, signal);
}

}  // namespace assay
