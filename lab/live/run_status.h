// What a watched run is doing now, judged from its folder; it changes no data there. A run is
// training while a process holds the folder's lock, whatever earlier launches recorded.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

enum class RunState {
  kMissing,     // not there: not begun yet, deleted or moved
  kStarting,    // training, without a logged step
  kTraining,    //
  kEnded,       // by itself, by Ctrl-C or by a guard
  kBrokenOff,   // not training and without a recorded end: killed, or training elsewhere
  kExport,      // of `assay dissect used`: it has no telemetry, and nothing trains it
  kUnreadable,  // damaged, or written by a newer program
};
const char* run_state_name(RunState state);  // for scripts: "missing", "starting", ...

struct RunStatus {
  std::string path;  // as the user gave it
  RunState state = RunState::kMissing;
  std::string end;           // run_end_name(), for kEnded
  std::string reason, hint;  // for kUnreadable
  bool read_failed = false;  // kUnreadable, but the same files may be readable later
  int64_t step = 0;          // the last logged one
  int64_t steps = 0;         // planned
  // Of the run, as its last line in the log says; of an earlier version's run, of training alone.
  std::optional<double> seconds_left;
};

// wait: for a program that holds its telemetry.
RunStatus run_status(const std::string& path, Wait wait = Wait::kLong);
void set_unreadable(const std::exception& error, RunStatus& status);

// Changes with every write of a training process and with the lock; costs a few system calls. What
// was read stands for it only without a read that failed: later the same files may be readable.
std::string run_fingerprint(const std::string& path);

// True if nothing more happens unless somebody starts a launch. Of a run whose read failed nobody
// knows.
bool is_over(const RunStatus& status);

// For people: "training, step 140 of 500 (28%), about 3m05s left".
enum class Seen { kNever, kBefore };
std::string status_text(const RunStatus& status, Seen seen);

// Training seconds from `step` to `steps`, by the last logged steps.
std::optional<double> seconds_left(const std::vector<StepValue>& train_s, int64_t steps);

}  // namespace assay
