#include "tools/assay/matrix_runner.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/seconds_since.h"
#include "engine/run/folder_lock.h"
#include "engine/run/interrupt.h"
#include "engine/run/progress.h"
#include "tools/assay/child_process.h"
#include "tools/assay/commands.h"
#include "tools/assay/live_display.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr Seconds kRedraw(0.5);
constexpr Seconds kPlainLine(30);  // between two progress lines of a run when not on a terminal
constexpr Seconds kPatience(15);   // wait for a run that another process has locked

// What a run has appended to its log since this object was made.
class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) {
    std::error_code none;
    start_ = fs::exists(path_, none) ? static_cast<int64_t>(fs::file_size(path_, none)) : 0;
  }

  // What follows this beginning in the whole lines that have it, each once.
  std::set<std::string> lines_after(const std::string& beginning) const {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(start_);
    std::set<std::string> found;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      if (line.starts_with(beginning)) found.insert(line.substr(beginning.size()));
    }
    return found;
  }

  // The last whole line with this beginning in the last 8 KiB; "" if there is none.
  std::string last_line(const std::string& beginning) const {
    constexpr int64_t kEnd = 8192;
    std::ifstream file(path_, std::ios::binary);
    file.seekg(0, std::ios::end);
    const int64_t size = file.tellg();
    file.seekg(std::max(start_, size - kEnd));
    std::string found;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      if (line.rfind(beginning, 0) == 0) found = line;
    }
    return found;
  }

 private:
  std::string path_;
  int64_t start_ = 0;
};

// Shortens a step line to fit beside a cell's name: "step 120/720 loss 4.812 437k tok/s eta 3h08m".
std::string short_step_line(const std::string& line) {
  std::istringstream words(line);
  std::string text, before;
  for (std::string word; words >> word; before = word) {
    if (before == "step") text += "step " + word;
    if (before == "loss" || before == "eta") text += " " + before + " " + word;
    if (word == "tok/s") text += " " + before + " tok/s";
  }
  return text;
}

// "moe-seed1 resumes after step 40 of 120": what the run is going to do.
std::string start_text(const PlannedRun& plan) {
  const long kept = plan.fresh ? 0 : long(plan.status.kept());
  const long told = plan.fresh ? 0 : long(plan.status.steps_done);
  std::string text = plan.cell->name;
  if (kept > 0) {
    text += strprintf(" resumes after step %ld", kept);
  } else if (told > 0) {
    text += strprintf(" begins again (no checkpoint; its telemetry ends at step %ld)", told);
  } else {
    text += " starts";
  }
  if (!plan.cell->known_steps) return text;
  return text + strprintf(kept > 0 ? " of %ld" : ", %ld steps", long(plan.cell->steps()));
}

struct Running {
  PlannedRun plan;
  LogTail log;
  std::unique_ptr<Child> child;
  Clock::time_point started = Clock::now();
  Clock::time_point said = Clock::now();
  int64_t step = 0;       // in its last step line
  std::string line = {};  // that line, shortened: "step 3/60 ..."
};

class Runner {
 public:
  Runner(const MatrixFolder& folder, std::vector<PlannedRun> planned, const RunnerOptions& options)
      : folder_(folder), options_(options), waiting_(std::move(planned)) {
    total_ = waiting_.size();
    make_folders(folder_.file("logs"));
  }

  RunnerResult run() {
    while (!waiting_.empty() || !running_.empty()) {
      pass_on_interrupt();
      start_what_fits();
      collect_ended();
      show();
      std::this_thread::sleep_for(kPoll);
    }
    return std::move(result_);
  }

 private:
  static double flops(const PlannedRun& run, int64_t steps_done) {
    return run.cell->flops_after(steps_done);
  }
  static double flops_done(const Running& run) {
    return flops(run.plan, run.plan.status.kept()) - flops(run.plan, run.step);
  }

  // A branch waits for the run that it leaves.
  bool may_start(const PlannedRun& run) const {
    const std::string& trunk = run.cell->trunk;
    if (trunk.empty()) return true;
    return std::none_of(waiting_.begin(), waiting_.end(),
                        [&](const PlannedRun& w) { return w.cell->name == trunk; }) &&
           std::none_of(running_.begin(), running_.end(),
                        [&](const Running& r) { return r.plan.cell->name == trunk; });
  }

  void pass_on_interrupt() {
    const int number = interrupt_.signal();
    if (number == 0 || result_.interrupted) return;
    result_.interrupted = true;
    waiting_.clear();
    for (const Running& run : running_) run.child->send(number);
  }

  void start_what_fits() {
    std::vector<int64_t> waiting, running;
    std::vector<size_t> ready;  // indices in waiting_
    for (size_t i = 0; i < waiting_.size(); ++i) {
      if (!may_start(waiting_[i])) continue;
      ready.push_back(i);
      waiting.push_back(waiting_[i].cell->memory_bytes);
    }
    for (const Running& run : running_) running.push_back(run.plan.cell->memory_bytes);
    const auto next = next_to_start(waiting, running, options_.budget);
    if (!next) return;
    const PlannedRun plan = waiting_[ready[*next]];
    if (folder_in_use(folder_.run(*plan.cell))) return wait_for_holder(ready[*next]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(ready[*next]));
    start(plan);
  }

  // The run is locked by a process of an earlier matrix that is about to end, or by one started by
  // hand.
  void wait_for_holder(size_t index) {
    const auto now = Clock::now();
    if (!holder_since_) {
      holder_since_ = now;
      print("waiting for another process that trains " + waiting_[index].cell->name);
    }
    if (now - *holder_since_ < kPatience) return;
    const std::string cell = waiting_[index].cell->name;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    holder_since_.reset();
    fail({.cell = cell, .code = kExitUserError, .error = "its run is in use by another process"});
  }

  void start(const PlannedRun& plan) {
    holder_since_.reset();
    const std::string run = folder_.run(*plan.cell);
    std::vector<std::string> arguments = {options_.program, "train", folder_.config(*plan.cell)};
    if (const Cell& cell = *plan.cell; !cell.trunk.empty()) {
      const int64_t warmdown = cell.steps() - cell.branch_step;
      arguments = {options_.program,
                   "branch",
                   folder_.file(cell.trunk),
                   "--at-step",
                   std::to_string(cell.branch_step),
                   "--warmdown-steps",
                   std::to_string(warmdown)};
    }
    arguments.insert(arguments.end(), {"--run", run});
    if (options_.device != "auto") {
      arguments.insert(arguments.end(), {"--device", options_.device});
    }
    std::error_code ignored;
    if (plan.fresh && !plan.cell->trunk.empty()) {
      fs::remove_all(run, ignored);  // what cannot be removed, the command names
    } else if (plan.fresh) {
      arguments.push_back("--fresh");
    }
    const std::string log = folder_.log(*plan.cell);
    running_.push_back({.plan = plan,
                        .log = LogTail(log),
                        .child = std::make_unique<Child>(arguments, log),
                        .step = plan.status.kept()});
    print(start_text(plan));
    if (plan.status.telemetry_lost && !plan.fresh) {
      print("warning: the telemetry of " + plan.cell->name +
            " is lost: it has no router measures and times of the steps before; to have them, "
            "delete " +
            run + " and train it again");
    }
  }

  void collect_ended() {
    for (size_t i = 0; i < running_.size();) {
      const std::optional<int> code = running_[i].child->ended();
      if (!code) {
        ++i;
        continue;
      }
      const Running run = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      collect_warnings(run);
      if (*code == kExitInterrupted && result_.interrupted) {
        print(run.plan.cell->name + " is interrupted, with a checkpoint");
      } else if (*code == kExitDone) {
        finish(run);
      } else {
        flops_done_ += flops_done(run);
        fail({.cell = run.plan.cell->name, .code = *code, .error = error_of(run, *code)});
      }
    }
  }

  void collect_warnings(const Running& run) {
    std::vector<RunWarning>& all = result_.warnings;
    for (const std::string& text : run.log.lines_after("warning: ")) {
      auto same = std::find_if(all.begin(), all.end(),
                               [&](const RunWarning& warning) { return warning.text == text; });
      if (same == all.end()) {
        all.push_back({.text = text, .runs = 0, .log = folder_.log(*run.plan.cell)});
        same = all.end() - 1;
      }
      ++same->runs;
    }
  }

  void finish(const Running& run) {
    flops_done_ += flops(run.plan, run.plan.status.kept());
    finished_ += 1;
    std::string said;
    for (const char* beginning : {"finished step", "reached the target loss"}) {
      if (said.empty()) said = run.log.last_line(beginning);
    }
    print(strprintf("%s is done (%zu of %zu, %s)%s%s", run.plan.cell->name.c_str(), finished_,
                    total_, duration_text(seconds_since(run.started)).c_str(),
                    said.empty() ? "" : ": ", said.c_str()));
  }

  static std::string error_of(const Running& run, int code) {
    const std::string error = run.log.last_line("error: ");
    if (!error.empty()) return error.substr(7);
    if (code > 128) return strprintf("ended by signal %d", code - 128);
    return strprintf("exit code %d", code);
  }

  void fail(FailedRun failed) {
    print(strprintf("%s FAILED (exit %d): %s", failed.cell.c_str(), failed.code,
                    failed.error.c_str()));
    result_.failed.push_back(std::move(failed));
    if (options_.on_failure == RunnerOptions::OnFailure::kStop) waiting_.clear();
  }

  // Prints a log line; the next show() redraws the block below it.
  void print(const std::string& line) {
    lines_.show({});
    lines_.print(line);
    shown_ = {};
  }

  // Seconds until all runs are done at the mean FLOP rate so far; -1 if unknown.
  double seconds_left() const {
    double done = flops_done_, left = 0;
    for (const PlannedRun& run : waiting_) left += flops(run, run.status.kept());
    for (const Running& run : running_) {
      done += flops_done(run);
      left += flops(run.plan, run.step);
    }
    return done > 0 ? left / done * seconds_since(began_) : -1;
  }

  void show() {
    const auto now = Clock::now();
    if (now - shown_ < kRedraw) return;
    shown_ = now;
    std::vector<std::string> block;
    for (Running& run : running_) {
      const std::string line = run.log.last_line("step ");
      long step = 0;
      if (sscanf(line.c_str(), "step %ld/", &step) == 1) {
        run.step = step;
        run.line = short_step_line(line);
      }
      const std::string text =
          run.plan.cell->name + "  " + (run.line.empty() ? "is starting" : run.line);
      block.push_back(text);
      if (!lines_.on_terminal() && now - run.said >= kPlainLine) {
        run.said = now;
        print(text);
      }
    }
    const double left = seconds_left();
    const size_t failed = result_.failed.size();
    block.push_back(strprintf("%zu of %zu done, ", finished_, total_) +
                    (failed > 0 ? strprintf("%zu failed, ", failed) : "") +
                    strprintf("%zu running, %zu waiting, eta %s", running_.size(), waiting_.size(),
                              duration_text(left).c_str()));
    lines_.show(block);
  }

  const MatrixFolder& folder_;
  const RunnerOptions& options_;
  std::vector<PlannedRun> waiting_;
  std::vector<Running> running_;
  size_t total_ = 0, finished_ = 0;
  double flops_done_ = 0;  // by this process, of runs that have ended
  std::optional<Clock::time_point> holder_since_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point shown_ = began_;
  const Interrupt interrupt_;
  LiveLines lines_;
  RunnerResult result_;
};

}  // namespace

RunnerResult train_cells(const MatrixFolder& folder, std::vector<PlannedRun> planned,
                         const RunnerOptions& options) {
  return Runner(folder, std::move(planned), options).run();
}

}  // namespace assay
