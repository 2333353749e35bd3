// assay watch: shows runs while they train, in a browser or in the terminal. It changes no data of
// them.
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "engine/run/interrupt.h"
#include "engine/run/run_dir.h"
#include "lab/live/feed.h"
#include "lab/live/run_view.h"
#include "lab/live/site.h"
#include "lab/live/text_frame.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/state.h"
#include "tools/assay/commands.h"
#include "tools/assay/host_names.h"
#include "tools/assay/http_server.h"
#include "tools/assay/run_paths.h"
#include "tools/assay/screen.h"

namespace assay {
namespace {

constexpr int kUsualPort = 7117;

struct WatchArguments {
  std::vector<std::string> runs;
  std::string address = "127.0.0.1", title;
  int port = -1;  // -1: kUsualPort, or a free one if it is in use
  double every_s = 2;
  bool allow_remote = false, wait = false, text = false, once = false;
};

// Signals that end a command or redraw its screen, taken by wait_for() and by no handler. Make it
// before the first thread: threads inherit that the signals are blocked.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP}) {
      if (!stays_ignored(number)) sigaddset(&set_, number);
    }
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }

  // 0 after `seconds` without a signal.
  int wait_for(double seconds) const {
    const timespec time = {.tv_sec = time_t(seconds),
                           .tv_nsec = long((seconds - double(time_t(seconds))) * 1e9)};
    const int number = sigtimedwait(&set_, nullptr, &time);
    return std::max(0, number);
  }

  static bool ends(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }
  static void suspend() { kill(getpid(), SIGSTOP); }

 private:
  sigset_t set_;
};

// Training has the right of way where it shares the cores.
void step_back() {
  constexpr int kNice = 10;
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, 0);
  if (errno == 0 && now < kNice) setpriority(PRIO_PROCESS, 0, kNice);
}

// In the order in which the matrix trains them; most may not have begun.
std::vector<std::string> runs_of_matrix(const std::string& path) {
  const RecordedMatrix recorded = read_matrix_folder(path);
  const MatrixFolder folder(path.substr(0, path.find_last_not_of('/') + 1));
  std::vector<std::string> runs;
  for (const Cell* cell : recorded.matrix.order()) runs.push_back(folder.run(*cell));
  return runs;
}

std::vector<std::string> require_runs(const WatchArguments& a) {
  std::vector<std::string> runs;
  for (const std::string& run : a.runs) {
    if (run.empty()) throw UserError("the name of a run is empty", "give the directory of a run");
    if (is_matrix_folder(run)) {
      for (const std::string& one : runs_of_matrix(run)) runs.push_back(one);
      continue;
    }
    runs.push_back(run);
    if (a.wait) continue;
    try {
      require_run(run);
    } catch (const UserError& error) {
      throw UserError(error.what(), error.hint() + "; --wait waits for a run to begin");
    }
  }
  return each_run_once(runs);
}

// The text mode.

// Returns the CPU time it took.
double read_views(RunViews& views) {
  const double started = thread_cpu_s();
  views.read(Wait::kBrief);
  return thread_cpu_s() - started;
}

int show_once(RunViews& views) {
  views.read(Wait::kLong);
  for (const RunView& view : views.all()) {
    if (view.status.state != RunState::kUnreadable) continue;
    if (views.all().size() == 1) throw UserError(view.status.reason, view.status.hint);
  }
  const Colours colours = wanted_colours();
  print_frame(text_frame(views.all(), terminal_size(), locale_glyphs(), colours), colours);
  return kExitDone;  // what could not be printed is told at the end of the program
}

int show_text(const WatchArguments& a, const std::vector<std::string>& runs) {
  RunViews views(runs);
  if (a.once || !is_terminal()) return show_once(views);
  const Signals signals;
  const Colours colours = wanted_colours();
  const auto frame = [&] {
    return text_frame(views.all(), terminal_size(), locale_glyphs(), colours);
  };
  {
    Screen screen;
    screen.draw(
        {StyledLine(strprintf("reading %zu run%s ...", runs.size(), runs.size() == 1 ? "" : "s"))},
        colours);
    for (int signal = 0; !Signals::ends(signal);) {
      double pause = a.every_s;
      if (signal == SIGTSTP) {
        screen.leave();
        Signals::suspend();
        screen.enter();
      } else if (signal == 0) {
        pause = pause_s(a.every_s, read_views(views));
      }
      screen.draw(frame(), colours);
      signal = signals.wait_for(pause);
    }
  }
  print_frame(frame(), colours);  // the last state stays on the terminal
  return kExitDone;
}

// The page.

void require_loopback(const WatchArguments& a) {
  const AddressKind kind = address_kind(a.address);
  if (kind == AddressKind::kOther) {
    throw UserError("--address: " + a.address + " is not an IP address",
                    "e.g. 127.0.0.1 (the default), or ::1");
  }
  if (kind == AddressKind::kLoopback || a.allow_remote) return;
  throw UserError(
      a.address + " is not a loopback address: anyone who can reach it could read the runs",
      strprintf("from another machine: ssh -L %d:127.0.0.1:%d THIS_MACHINE; or add --allow-remote",
                kUsualPort, kUsualPort));
}

std::unique_ptr<HttpServer> bind_server(const WatchArguments& a, LiveSite& site) {
  if (a.port >= 0) return std::make_unique<HttpServer>(site, a.address, a.port);
  try {
    return std::make_unique<HttpServer>(site, a.address, kUsualPort);
  } catch (const UserError& error) {
    auto free_port = std::make_unique<HttpServer>(site, a.address, 0);
    std::fprintf(stderr, "note: %s; using another port\n", error.what());
    return free_port;
  }
}

// What a browser can open: 0.0.0.0 is no address to call.
std::string callable(const std::string& address, const std::vector<std::string>& names) {
  const bool has_name = address_kind(address) == AddressKind::kEvery && !names.empty();
  return has_name ? names.front() : address;
}

int serve(const WatchArguments& a, const std::vector<std::string>& runs) {
  require_loopback(a);
  const std::string title = !a.title.empty()     ? a.title
                            : a.runs.size() == 1 ? "Live: " + a.runs.front()
                                                 : "Live: " + std::to_string(runs.size()) + " runs";
  LiveFeed feed(runs, a.every_s);
  const auto names = a.allow_remote ? own_host_names() : std::vector<std::string>();
  const std::string address = callable(a.address, names);
  LiveSite site(feed, title, names);
  const Signals signals;
  const std::unique_ptr<HttpServer> server = bind_server(a, site);
  server->start();
  if (address_kind(a.address) != AddressKind::kLoopback) {
    std::fprintf(stderr,
                 "warning: anyone who can reach %s can read these runs; the page has no password "
                 "and no encryption\n",
                 address.c_str());
  }
  std::fprintf(stderr, "watching %zu run%s; press Ctrl-C to stop\n", runs.size(),
               runs.size() == 1 ? "" : "s");
  std::printf("%s\n", url_of(address, server->port()).c_str());
  std::fflush(stdout);
  constexpr double kLong = 3600;
  for (int signal = 0; !Signals::ends(signal); signal = signals.wait_for(kLong)) {
    if (signal == SIGTSTP) Signals::suspend();
  }
  // For a client that takes nothing, and for a large run that is being read, nobody waits: all that
  // was to be said is said.
  constexpr double kStopSeconds = 2;
  if (!server->stop(kStopSeconds) || feed.is_making()) _exit(kExitDone);
  return kExitDone;
}

int run_watch(const WatchArguments& a) {
  const std::vector<std::string> runs = require_runs(a);
  step_back();
  return a.text ? show_text(a, runs) : serve(a, runs);
}

}  // namespace

void add_watch_command(Commands& commands) {
  auto a = std::make_shared<WatchArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "watch", "show runs while they train: the report page, kept up to date, or a terminal");
  sub->add_option("RUN", a->runs, "directories of runs, finished or still training, or of matrices")
      ->required();
  CLI::Option* text =
      sub->add_flag("--text", a->text, "show them in this terminal, without a browser");
  sub->add_flag("--once", a->once, "with --text: print one screen and exit")->needs(text);
  sub->add_option("--every", a->every_s, "seconds between reads of the runs, at least (default: 2)")
      ->check(above_zero())
      ->check(number_between(0.01, 86400.0));
  sub->add_flag("--wait", a->wait, "wait for runs that do not exist yet");
  sub->add_option("--port", a->port,
                  strprintf("port of the page; 0: a free one (default: %d, or a free one if it is "
                            "in use)",
                            kUsualPort))
      ->check(whole_between(0, 65535))
      ->excludes(text);
  sub->add_option("--address", a->address, "address to serve at (default: 127.0.0.1)")
      ->excludes(text);
  sub->add_flag("--allow-remote", a->allow_remote,
                "allow an --address that other machines can reach; anyone there can read the runs")
      ->excludes(text);
  sub->add_option("--title", a->title, "heading of the page")->excludes(text);
  sub->footer(
      "Examples:\n"
      "  assay watch runs/moe                 prints the address of the page; Ctrl-C stops\n"
      "  assay watch runs/demo-*/ --port 0    several runs, at a free port\n"
      "  assay watch runs/cpu                 the runs of a matrix, as they begin\n"
      "  assay watch runs/moe --text          in the terminal\n"
      "  ssh -L 7117:127.0.0.1:7117 HOST      then the page of HOST is at localhost:7117\n"
      "It changes no data of a run. docs/watch.md explains the page and the screen.");
  commands.on_chosen(sub, [a] {
    a->runs = run_paths(a->runs);
    return run_watch(*a);
  });
}

}  // namespace assay
