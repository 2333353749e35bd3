#include "lab/live/run_status.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/read_failed.h"
#include "base/shell_word.h"
#include "engine/config/yaml.h"
#include "engine/run/folder_lock.h"
#include "engine/run/progress.h"
#include "engine/telemetry/exported.h"
#include "lab/dissect/damage.h"
#include "lab/dissect/used.h"
#include "models/audit/model_table.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// A run on another machine, which holds no lock that is visible here, counts as training while its
// telemetry changes.
constexpr double kFreshSeconds = 60;

// Files whose change changes what a page shows. The WAL grows with every logged step.
constexpr const char* kFiles[] = {"config.yaml",      "meta.json",     "telemetry.db",
                                  "telemetry.db-wal", "samples.jsonl", "evals",
                                  "receipt.json",     kDamageFile,     kUsedFile};

bool is_fresh(const std::string& path) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const char* suffix : {"", "-wal"}) {
    struct stat file = {};
    if (stat((telemetry_file(path) + suffix).c_str(), &file) != 0) continue;
    // A date in the future is of another machine's clock, or of one that was set back.
    if (std::abs(now - double(file.st_mtim.tv_sec)) < kFreshSeconds) return true;
  }
  return false;
}

// A launch that is killed while it makes the file leaves it empty.
bool has_telemetry(const std::string& database) {
  struct stat file = {};
  if (stat(database.c_str(), &file) == 0) return S_ISREG(file.st_mode) && file.st_size > 0;
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) return false;
  throw_unread(database, error, "check the file and its disk: ls -l " + shell_word(database));
}

// What the line of the last logged step says. Absent where an earlier version wrote it, and after a
// launch that has logged none yet: it may plan other steps.
std::optional<double> recorded_left(const TelemetryReader& telemetry) {
  const std::optional<StepValue> eta = telemetry.last_scalar("eta_s");
  if (!eta || eta->step != telemetry.last_step()) return std::nullopt;
  Statement resumed(telemetry.database(),
                    "SELECT 1 FROM event WHERE kind = 'resume' AND step >= ? LIMIT 1");
  if (resumed.bind(0, eta->step).step()) return std::nullopt;
  return eta->value;
}

void read_telemetry(const std::string& path, Wait wait, RunStatus& status) {
  const bool locked = folder_in_use(path);
  const std::string database = telemetry_file(path);
  if (!has_telemetry(database)) {
    status.state = locked                ? RunState::kStarting
                   : exported_from(path) ? RunState::kExport
                                         : RunState::kBrokenOff;
    return;
  }
  const TelemetryReader telemetry(database, wait);
  const std::string end = telemetry.end();
  status.step = end.empty() ? telemetry.last_step().value_or(0) : telemetry.steps_done();
  status.seconds_left = recorded_left(telemetry);
  if (!status.seconds_left) {
    status.seconds_left = seconds_left(telemetry.scalar("train_s"), status.steps);
  }
  if (!locked && !end.empty()) {
    status.state = RunState::kEnded;
    status.end = end;
  } else if (!locked && !is_fresh(path)) {
    status.state = RunState::kBrokenOff;
  } else {
    status.state = status.step == 0 ? RunState::kStarting : RunState::kTraining;
  }
}

std::string end_text(const RunStatus& s) {
  static const std::map<std::string, std::string> texts = {
      {"target_loss", "finished: target loss reached"},
      {"interrupted", "stopped"},
      {"stop_after", "stopped by --stop-after"},
      {"non_finite", "stopped: NaN or infinite"},
      {"collapse_stop", "stopped by telemetry.collapse_stop: routers collapsed"}};
  if (s.end == "steps") return "finished";
  const auto found = texts.find(s.end);
  if (found != texts.end()) return found->second;
  std::string words = "ended: " + s.end;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

const char* run_state_name(RunState state) {
  switch (state) {
    case RunState::kMissing:
      return "missing";
    case RunState::kStarting:
      return "starting";
    case RunState::kTraining:
      return "training";
    case RunState::kEnded:
      return "ended";
    case RunState::kBrokenOff:
      return "broken off";
    case RunState::kExport:
      return "export";
    case RunState::kUnreadable:
      return "unreadable";
  }
  return "?";
}

void set_unreadable(const std::exception& error, RunStatus& status) {
  const auto* told = dynamic_cast<const UserError*>(&error);
  status.state = RunState::kUnreadable;
  status.reason = error.what();
  status.hint =
      told != nullptr ? told->hint() : "check its files: ls -la " + shell_word(status.path);
  status.read_failed = told == nullptr || is_read_failed(*told);
}

RunStatus run_status(const std::string& path, Wait wait) {
  RunStatus status;
  status.path = path;
  std::error_code ignored;
  if (!fs::exists(path + "/config.yaml", ignored)) return status;
  try {
    status.steps = load_config(path + "/config.yaml", {}).run.steps;
    read_telemetry(path, wait, status);
  } catch (const std::exception& error) {  // also of the file system: the other runs stay
    set_unreadable(error, status);
    if (!fs::exists(path + "/config.yaml", ignored)) {  // deleted while it was read
      status = RunStatus();
      status.path = path;
    }
  }
  return status;
}

std::string run_fingerprint(const std::string& path) {
  std::string text = folder_in_use(path) ? "locked" : is_fresh(path) ? "fresh" : "quiet";
  for (const char* name : kFiles) {
    struct stat file = {};
    if (stat((path + "/" + name).c_str(), &file) != 0) {
      text += " -";
      continue;
    }
    text += strprintf(" %lu:%ld:%ld.%09ld", static_cast<unsigned long>(file.st_ino),
                      long(file.st_size), long(file.st_mtim.tv_sec), long(file.st_mtim.tv_nsec));
  }
  return text;
}

bool is_over(const RunStatus& s) {
  if (s.state == RunState::kUnreadable)
    return !s.read_failed && !folder_in_use(s.path) && !is_fresh(s.path);
  return s.state == RunState::kEnded || s.state == RunState::kBrokenOff ||
         s.state == RunState::kExport;
}

std::string status_text(const RunStatus& s, Seen seen) {
  const std::string at =
      s.step == 0 ? ", no logged step" : ", step " + grouped(s.step) + " of " + grouped(s.steps);
  switch (s.state) {
    case RunState::kMissing:
      return seen == Seen::kBefore ? "gone: deleted or moved; waiting for it to come back"
                                   : "not started yet: waiting for it";
    case RunState::kStarting:
      return "starting, no step logged yet";
    case RunState::kTraining: {
      std::string text = "training" + at;
      if (s.steps > 0) text += strprintf(" (%.0f%%)", 100 * double(s.step) / double(s.steps));
      if (s.seconds_left) text += ", about " + duration_text(*s.seconds_left) + " left";
      return text;
    }
    case RunState::kEnded:
      return end_text(s) + at;
    case RunState::kBrokenOff:
      return "not training" + at + ": not started, killed, or training on another machine";
    case RunState::kExport:
      return "an export of `dissect used`, without telemetry";
    case RunState::kUnreadable:
      return "cannot be read: " + s.reason + " (" + s.hint + ")";
  }
  return "";
}

std::optional<double> seconds_left(const std::vector<StepValue>& train_s, int64_t steps) {
  constexpr size_t kRecent = 20;  // logged steps
  if (train_s.size() < 2) return std::nullopt;
  const StepValue& last = train_s.back();
  const StepValue& before = train_s[train_s.size() - std::min(train_s.size(), kRecent + 1)];
  if (last.step <= before.step || last.step > steps) return std::nullopt;
  return (last.value - before.value) / double(last.step - before.step) * double(steps - last.step);
}

}  // namespace assay
