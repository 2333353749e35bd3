#include "tools/assay/mpirun.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "base/cores.h"
#include "engine/run/interrupt.h"
#include "tools/assay/child_process.h"

namespace assay {

namespace {

// Open MPI copies large messages from process to process, which some containers forbid. Then it
// must go through shared memory instead.
bool may_read_processes() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

// What a launch on one machine needs. A variable that is set already stays. Open MPI 4 starts the
// ranks itself (OMPI_MCA_...), 5 by PRRTE (PRTE_MCA_...), which does not read the other's names.
void set_environment(int ranks) {
  const auto set = [](const char* name, const char* value) { setenv(name, value, 0); };
  // Ranks have several threads each, and there may be more ranks than cores.
  set("OMPI_MCA_hwloc_base_binding_policy", "none");
  set("OMPI_MCA_rmaps_base_oversubscribe", "1");
  set("PRTE_MCA_hwloc_default_binding_policy", "none");
  set("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
  if (ranks > usable_cores()) set("OMPI_MCA_mpi_yield_when_idle", "1");
  if (!may_read_processes()) {
    set("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    set("OMPI_MCA_smsc", "^cma");  // the same in Open MPI 5
  }
  set("OMPI_MCA_btl_base_warn_component_unused", "0");
  set("OMPI_MCA_pml", "ob1");  // looking for faster networks takes longer than starting the rest
  // When a rank is lost the others have nothing to save: they end at once, not a second later.
  // (PRRTE gives them half a second.)
  set("OMPI_MCA_odls_base_sigkill_timeout", "0");
  for (const char* name : MpirunOutput::kTellStates) set(name, "1");
  if (geteuid() == 0) {  // mpirun asks root twice
    set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
}

std::atomic<pid_t> child = 0;
std::atomic<int> asked = 0;
StopRequests requests;
static_assert(std::atomic<pid_t>::is_always_lock_free, "used in a signal handler");

void on_signal(int number) {
  const pid_t pid = child;
  if (pid <= 0) return;
  const StopRequests::Kind kind = requests.hear(number);
  if (kind == StopRequests::Kind::kEcho) return;
  asked += 1;
  kill(pid, kind == StopRequests::Kind::kFirst ? SIGUSR1 : SIGTERM);
}

// Of a process: where Linux lists its children.
std::string children_file(pid_t pid) {
  return strprintf("/proc/%d/task/%d/children", int(pid), int(pid));
}

char file_of_ranks[64];  // children_file() of mpirun; written before a signal may come

// Called in a signal handler, where a stream may not be used.
void signal_ranks(int number) {
  const int file = open(file_of_ranks, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char text[256];
  pid_t rank = 0;
  for (ssize_t n; (n = read(file, text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) {
      if (text[i] >= '0' && text[i] <= '9') {
        rank = rank * 10 + (text[i] - '0');
      } else {
        if (rank > 0) kill(rank, number);
        rank = 0;
      }
    }
  }
  close(file);
}

// Ctrl-Z: the ranks, which are not in the terminal's group, stand still as long as this process.
// Their silence is not counted while they do.
void on_pause(int) {
  const int error = errno;
  signal_ranks(SIGSTOP);
  raise(SIGSTOP);
  signal_ranks(SIGCONT);
  errno = error;
}

// Passes signals on during its life. A write to a closed pipe must not end the supervisor.
class PassedOn {
 public:
  explicit PassedOn(pid_t pid) {
    snprintf(file_of_ranks, sizeof file_of_ranks, "%s", children_file(pid).c_str());
    asked = 0;
    requests.forget();
    child = pid;
    struct sigaction action = {};
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;
    for (size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaction(kStopSignals[i], nullptr, &before_[i]);
      if (stays_ignored(kStopSignals[i])) continue;
      sigaction(kStopSignals[i], &action, nullptr);
    }
    action.sa_handler = on_pause;
    sigaction(SIGTSTP, nullptr, &before_pause_);
    if (before_pause_.sa_handler != SIG_IGN) sigaction(SIGTSTP, &action, nullptr);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &before_pipe_);
  }
  ~PassedOn() {
    for (size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaction(kStopSignals[i], &before_[i], nullptr);
    }
    sigaction(SIGTSTP, &before_pause_, nullptr);
    sigaction(SIGPIPE, &before_pipe_, nullptr);
    child = 0;
  }

 private:
  struct sigaction before_[std::size(kStopSignals)], before_pause_, before_pipe_;
};

[[noreturn]] void become(char* const* argv, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotStart);
  setpgid(0, 0);  // Ctrl-C in the terminal reaches the supervisor alone
  // Nor may mpirun read from that terminal.
  if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(argv[0], argv);
  constexpr char kMessage[] = "mpirun: cannot be started\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kCannotStart);
}

void print(const std::string& text) {
  if (text.empty()) return;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

using Clock = std::chrono::steady_clock;

// mpirun passes no signal on before it has started the ranks: until one answers, it is asked again
// every second, however many lines the ranks print meanwhile. To a rank that has heard it once more
// is nothing new.
class AskAgain {
 public:
  static constexpr std::chrono::milliseconds kEvery{1000};
  void look(const MpirunOutput& output) {
    if (asked != 1 || output.said_stopping()) return;
    const Clock::time_point now = Clock::now();
    if (!last_) last_ = now;  // the request itself was passed on a moment ago
    if (now - *last_ < kEvery) return;
    last_ = now;
    if (const pid_t pid = child; pid > 0) kill(pid, SIGUSR1);
  }

 private:
  std::optional<Clock::time_point> last_;
};

// mpirun may hang in its own end: Open MPI 4.1 does after a rank that died while it started.
void end_by_force() {
  const pid_t pid = child;
  if (pid <= 0) return;
  std::ifstream ranks(children_file(pid));
  for (pid_t rank; ranks >> rank;) kill(rank, SIGKILL);
  kill(pid, SIGKILL);
}

// Ranks whose mpirun is gone hold the run's folder until they notice it, up to a second or two.
// They are children of this process by then (run_mpirun() asks for that).
void end_orphans() {
  std::ifstream orphans(children_file(getpid()));
  for (pid_t rank; orphans >> rank;) kill(rank, SIGKILL);
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

// Reads to the end of the pipe, which is when mpirun is gone: the ranks have pipes of its own.
void read_lines(int pipe, MpirunOutput& output) {
  constexpr int kLookAgainMs = 100;
  constexpr std::chrono::milliseconds kEnds{1500};  // it takes a tenth of a second
  std::optional<Clock::time_point> ends;
  AskAgain ask_again;
  std::string rest;
  std::array<char, 4096> buffer;
  while (true) {
    if (output.is_ending()) {
      if (!ends) ends = Clock::now() + kEnds;
      if (Clock::now() > *ends) end_by_force();
    }
    ask_again.look(output);
    pollfd ready{.fd = pipe, .events = POLLIN, .revents = 0};
    const int most_ms = ends ? kLookAgainMs : int(AskAgain::kEvery.count());
    if (poll(&ready, 1, most_ms) <= 0) continue;
    const ssize_t n = read(pipe, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    rest.append(buffer.data(), size_t(n));
    size_t end;
    while ((end = rest.find('\n')) != std::string::npos) {
      const std::string line = rest.substr(0, end);
      rest.erase(0, end + 1);
      print(output.take(line, asked > 0));
    }
  }
  if (!rest.empty()) print(output.take(rest, asked > 0));
}

}  // namespace

MpirunEnd run_mpirun(int ranks, const std::vector<std::string>& command) {
  set_environment(ranks);
  std::vector<std::string> words{"mpirun", "-n", std::to_string(ranks)};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw UserError(std::string("no pipe to mpirun: ") + strerror(errno),
                    "check the limit on open files (ulimit -n)");
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) become(argv.data(), ends[1], parent);
  const std::string why = strerror(errno);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    throw UserError("cannot start another process: " + why,
                    "check the limit on processes (ulimit -u)");
  }
  const PassedOn signals(pid);
  MpirunEnd end;
  read_lines(ends[0], end.output);
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  end.asked = asked;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
    end_orphans();
  } else {
    end.code = WEXITSTATUS(status);
  }
  if (end.code == kCannotStart && !end.output.said_error()) {
    throw UserError("cannot start mpirun, which starts the ranks",
                    "install an MPI (Debian: apt-get install openmpi-bin), or add the folder of "
                    "its mpirun to PATH");
  }
  return end;
}

}  // namespace assay
