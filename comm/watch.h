// One rank's part in noticing that another one is lost: what it sends, what it makes of what it
// hears, and when it gives up on somebody. Without threads and clocks of its own; comm/control.h
// is what programs use.
//
// A star: every rank tells rank 0 its word each beat_s, rank 0 tells its own to every rank. Rank 0
// decides how the run ended and tells all; they confirm. Only the silence of rank 0 is decided by
// others, each for itself, who tell all too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/control_letter.h"
#include "comm/last_words.h"
#include "comm/world.h"

namespace assay {

struct ControlTimes {
  double beat_s = 1;
  double silence_s = 20;  // a rank that says nothing for so long is lost; several beats
  double stuck_s = 900;   // so is one that for so long keeps others waiting in a call
};

class Watch {
 public:
  // me: names this process in messages.
  Watch(Mail& mail, int size, int rank, ControlTimes times, std::string me);

  // One look around, to be called often within beat_s. now_s: of a clock that does not go back.
  // own: what, step, call, slow and leaving of this rank.
  struct Reason {
    std::string why, hint;
  };
  void round(double now_s, LastWord own, const std::optional<Reason>& gives_up);

  // From now on ranks only queue the work of their GPUs, and wait for it: a call that all of them
  // have begun, and behind which nothing comes for stuck_s, does not end.
  void calls_are_queued() { queued_ = true; }

  // How the run ended; the first one stays. rank -1: every rank is leaving.
  struct Outcome {
    int rank = -1;
    std::string message, hint;
  };
  const std::optional<Outcome>& outcome() const { return outcome_; }
  // Whether everybody knows the outcome whom this rank has to tell, and who can hear.
  bool passed_on() const;

  // What this rank has heard, with their ages: on rank 0 everybody's.
  std::vector<LastWord> words() const;

 private:
  struct Peer {
    LastWord word;
    double heard_s = 0;      // by clock_s_
    int64_t unreadable = 0;  // letters
    bool confirmed = false;  // the outcome
  };

  void take_own(LastWord own);
  void read_letters();
  void read(const Mail::Letter& letter);
  void judge();
  void judge_silence();
  void judge_end();
  void judge_stuck();
  void judge_standstill();
  void lose(int rank, const std::string& message, const std::string& hint);
  void conclude(Outcome outcome);
  void post(int to, ControlLetter letter);
  void keep(Peer& peer, const LastWord& word);
  Peer& peer(int rank) { return peers_[size_t(rank)]; }
  const Peer& peer(int rank) const { return peers_[size_t(rank)]; }

  Mail& mail_;
  const int size_, rank_;
  const ControlTimes times_;
  const std::string me_;
  std::vector<Peer> peers_;  // (size)
  // Time in which this rank looked around. A pause of this process, or of all of them, is not the
  // silence of the others.
  double clock_s_ = 0;
  std::optional<double> before_s_;  // now_s of the round before
  double next_beat_s_ = 0;
  double moved_s_ = 0;  // when a word last changed in what judge_stuck() goes by
  bool gave_up_ = false, queued_ = false;
  std::optional<Outcome> outcome_;
  bool decided_here_ = false, lost_is_silent_ = false;
};

}  // namespace assay
