// Runs this program again as a child process. Its output goes to a file, and it dies with its
// parent, even if the parent is killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace assay {

inline constexpr const char* kThisProgram = "/proc/self/exe";
// The exit code of a child that did not become its program.
inline constexpr int kCannotStart = 127;

class Child {
 public:
  // arguments[0] is the program's name as the child sees it. stdout and stderr are appended to
  // `log`, stdin is empty. The child gets its own process group, so that Ctrl-C in the terminal
  // reaches only the parent. UserError when `log` cannot be written or no process can be started.
  Child(const std::vector<std::string>& arguments, const std::string& log);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills the child if it is still running, and waits for it

  // The exit code once the child has ended, 128 + signal if a signal ended it; nothing before.
  std::optional<int> ended();
  void send(int signal) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
};

}  // namespace assay
