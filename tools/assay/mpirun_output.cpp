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
    if (cut.find_first_not_of('-') == std::string::npos) return "";
    if (!was_inside) return take_of_rank(cut, asked);
    own_words_ += cut + "\n";
    return "";
  }
  if (inside_ && !is_message(line)) {  // a rank's message may come between
    read_dead(line);
    own_words_ += line + "\n";
    return "";
  }
  if (begins(line, "mpirun: ")) {
    own_words_ += line + "\n";
    return "";
  }
  if (is_of_library(line)) {
    if (!read_state(line)) library_words_ += line + "\n";
    return "";
  }
  return take_of_rank(line, asked);
}

void MpirunOutput::read_dead(const std::string& line) {
  DeadRank dead;
  char node[256] = "";
  if (is_final_ ||
      std::sscanf(line.c_str(),
                  "mpirun noticed that process rank %d with PID %d on node %255s exited "
                  "on signal %d",
                  &dead.rank, &dead.pid, node, &dead.signal) != 4) {
    return;
  }
  dead.node = node;
  dead_ = dead;
  is_final_ = is_ending_ = true;
}

// "[vm:08782] [[20144,0],0] ACTIVATE PROC [[20144,1],2] STATE ABORTED BY SIGNAL AT ..."
bool MpirunOutput::read_state(const std::string& line) {
  const size_t state = line.find("] ACTIVATE ");
  if (state == std::string::npos) return false;
  constexpr std::string_view kAborted = "STATE ABORTED BY SIGNAL ";
  int rank = 0, read = 0;
  if (!dead_ &&
      std::sscanf(line.c_str() + state, "] ACTIVATE PROC [[%*d,%*d],%d] %n", &rank, &read) == 1 &&
      read > 0 && line.compare(state + size_t(read), kAborted.size(), kAborted) == 0) {
    dead_ = DeadRank{.rank = rank, .pid = 0, .node = {}, .signal = 0};
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
