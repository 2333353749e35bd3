// What comes out of mpirun's standard error, sorted: lines of the ranks, and mpirun's own words.
#pragma once

#include <optional>
#include <set>
#include <string>

namespace assay {

// A rank that a signal ended, by mpirun's words.
struct DeadRank {
  int rank = 0;
  int pid = 0;       // 0: not said, as by Open MPI 4.1
  std::string node;  // "": not said
  int signal = 0;    // 0: not said
};

// mpirun's words stand between two lines of dashes, or begin with "mpirun: " or "[host:pid] "
// (Open MPI; version 5 says prterun). It does not always say in the end which rank it was; what it
// says of the states of processes, if asked to (kTellStates), does.
class MpirunOutput {
 public:
  // What is to be printed of `line` (without its end): a rank's lines, with their ends, or "". A
  // line `error:` or `hint:` that several ranks print comes once. asked: the ranks were asked to
  // stop. Otherwise their answer to SIGTERM is left out, which mpirun sends to end them.
  std::string take(const std::string& line, bool asked = false);

  bool is_ending() const { return is_ending_; }  // a rank is dead, or all have ended
  const std::optional<DeadRank>& dead() const { return dead_; }  // the first one
  bool said_error() const { return said_error_; }                // a rank printed `error: ...`
  bool said_stopping() const { return said_stopping_; }          // a rank has heard that it ends
  const std::string& own_words() const { return own_words_; }    // without lines of dashes
  // "[host:pid] ...", without the states.
  const std::string& library_words() const { return library_words_; }

  // Set to 1, for Open MPI 4 and 5.
  static constexpr const char* kTellStates[] = {"OMPI_MCA_state_base_verbose",
                                                "PRTE_MCA_state_base_verbose"};

 private:
  std::string take_of_rank(const std::string& line, bool asked);
  void read_dead();
  bool read_state(const std::string& line);

  bool inside_ = false;  // of a block between dashes
  std::string block_;    // its words so far
  bool blank_ = false;   // an empty line is held back
  std::set<std::string> said_;
  std::optional<DeadRank> dead_;
  bool is_ending_ = false;
  bool is_final_ = false;  // dead_ is mpirun's last word
  bool said_error_ = false, said_stopping_ = false;
  std::string own_words_, library_words_;
};

}  // namespace assay
