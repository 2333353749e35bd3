// This very program, started once more as a child: its output goes to a file, and it does not
// outlive its parent, not even one that is killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace assay {

class Child {
 public:
  // arguments[0] is the name of the program as the child sees it. stdout and stderr are appended to
  // `log`, stdin is empty; the child has a process group of its own, so that Ctrl-C in the terminal
  // reaches only the parent.
  Child(const std::vector<std::string>& arguments, const std::string& log);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // kills it when it is still there, and waits

  // The exit code once it has ended; 128 + the signal when one ended it.
  std::optional<int> ended();
  void send(int signal) const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> code_;
};

}  // namespace assay
