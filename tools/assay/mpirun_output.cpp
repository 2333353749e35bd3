#include "tools/assay/mpirun_output.h"

#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

#include "engine/run/interrupt.h"

namespace assay {

namespace {

constexpr size_t kDashes = 74;  // in a line around a block

bool begins(const std::string& line, std::string_view with) {
  return line.rfind(with, 0) == 0;
}

// The number of characters before the dashes that end a block or begin one; npos if there are none.
// A rank that was cut in its line has left a part of it there.
size_t before_dashes(const std::string& line) {
  if (line.size() < kDashes) return std::string::npos;
  const size_t begin = line.size() - kDashes;
  return line.find_first_not_of('-', begin) == std::string::npos ? begin : std::string::npos;
}

// "[node07:4242] ..."
bool is_of_library(const std::string& line) {
  if (line.empty() || line[0] != '[') return false;
  const size_t colon = line.find(':'), end = line.find("] ");
  if (colon == std::string::npos || end == std::string::npos || end <= colon + 1) return false;
  for (size_t i = colon + 1; i < end; ++i) {
    if (std::isdigit(static_cast<unsigned char>(line[i])) == 0) return false;
  }
  return line.find(' ') > end;
}

bool is_message(const std::string& line) {
  return begins(line, "error: ") || begins(line, "hint: ");
}

}  // namespace

std::string MpirunOutput::take(const std::string& line, bool asked) {
  if (const size_t before = before_dashes(line); before != std::string::npos) {
    const std::string cut = line.substr(0, before);
    const bool was_inside = std::exchange(inside_, !inside_);
    block_.clear();
    if (cut.find_first_not_of('-') == std::string::npos) return "";
    if (!was_inside) return take_of_rank(cut, asked);
    own_words_ += cut + "\n";
    return "";
  }
  if (inside_ && !is_message(line)) {  // a rank's message may come between
    block_ += line + "\n";
    read_dead();
    own_words_ += line + "\n";
    return "";
  }
  if (begins(line, "mpirun: ") || begins(line, "prterun: ")) {
    own_words_ += line + "\n";
    return "";
  }
  if (is_of_library(line)) {
    if (!read_state(line)) library_words_ += line + "\n";
    return "";
  }
  return take_of_rank(line, asked);
}

// "mpirun noticed that ...": one line by Open MPI 4. By 5 it is "prterun noticed", and "signal"
// begins a second line.
void MpirunOutput::read_dead() {
  DeadRank dead;
  char node[256] = "";
  const size_t who = block_.find("run noticed that ");
  if (is_final_ || who == std::string::npos ||
      std::sscanf(block_.c_str() + who,
                  "run noticed that process rank %d with PID %d on node %255s exited on signal %d",
                  &dead.rank, &dead.pid, node, &dead.signal) != 4) {
    return;
  }
  dead.node = node;
  dead_ = dead;
  is_final_ = is_ending_ = true;
}

// By Open MPI 4:
//   [vm:08782] [[20144,0],0] ACTIVATE PROC [[20144,1],2] STATE ABORTED BY SIGNAL AT ...
// By 5, which repeats each line as "ACTIVATING ...":
//   [vm:08782] [prterun-vm-08782@0,0] [17.05] ACTIVATE PROC [prterun-vm-08782@1,2] STATE ABORTED
bool MpirunOutput::read_state(const std::string& line) {
  if (line.find("] ACTIVATING ") != std::string::npos) return true;
  const size_t state = line.find("] ACTIVATE ");
  if (state == std::string::npos) return false;
  constexpr std::string_view kProcess = "] ACTIVATE PROC ", kAborted = "] STATE ABORTED BY SIGNAL ";
  const size_t aborted = line.find(kAborted, state);
  if (!dead_ && aborted != std::string::npos &&
      line.compare(state, kProcess.size(), kProcess) == 0) {
    int rank = 0;
    const size_t comma = line.rfind(',', aborted);
    if (comma > state && std::sscanf(line.c_str() + comma, ",%d]", &rank) == 1) {
      dead_ = DeadRank{.rank = rank, .pid = 0, .node = {}, .signal = 0};
    }
  }
  is_ending_ |= dead_ || line.find(" STATE DAEMONS TERMINATED ", state) != std::string::npos;
  return true;
}

std::string MpirunOutput::take_of_rank(const std::string& line, bool asked) {
  if (line.empty()) {  // it may belong to what follows
    return std::exchange(blank_, true) ? "\n" : "";
  }
  const std::string blank = std::exchange(blank_, false) ? "\n" : "";
  if (line == kStopping) {
    said_stopping_ = true;
    if (!asked) return "";
  }
  if (is_message(line)) {
    if (begins(line, "error: ")) said_error_ = true;
    if (!said_.insert(line).second) return "";
  }
  return blank + line + "\n";
}

}  // namespace assay
