#include "comm/watch.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "comm/rank_lost.h"

namespace assay {

namespace {

constexpr const char* kHint = "see that rank's output and its machine";
constexpr const char* kHangHint =
    "nvidia-smi and dmesg show what the GPUs do, NCCL_DEBUG=INFO what NCCL does; if a step takes "
    "longer, raise parallel.stuck_s";
// More would keep a rank from its other work.
constexpr int kMostLettersARound = 10000;

}  // namespace

Watch::Watch(Mail& mail, int size, int rank, ControlTimes times, std::string me)
    : mail_(mail), size_(size), rank_(rank), times_(times), me_(std::move(me)) {
  CHECK(times.beat_s > 0 && times.silence_s >= 2 * times.beat_s && times.stuck_s > 0,
        "control: a beat each %g s, silence for %g s, stuck for %g s", times.beat_s,
        times.silence_s, times.stuck_s);
  peers_.resize(size_t(size));
  for (int r = 0; r < size; ++r) peer(r).word.rank = r;
}

void Watch::round(double now_s, LastWord own, const std::optional<Reason>& gives_up) {
  if (before_s_) clock_s_ += std::clamp(now_s - *before_s_, 0.0, times_.beat_s);
  before_s_ = now_s;
  take_own(std::move(own));
  read_letters();
  if (outcome_) return;
  if (gives_up && !gave_up_) {
    gave_up_ = true;
    if (rank_ == 0) {
      lose(0, rank_name(peer(0).word) + std::string(kGaveUp) + gives_up->why, gives_up->hint);
    } else {
      ControlLetter letter;
      letter.kind = ControlLetter::Kind::kGiveUp;
      letter.message = gives_up->why;
      letter.hint = gives_up->hint;
      post(0, std::move(letter));
    }
  }
  judge();
  if (outcome_ || clock_s_ < next_beat_s_) return;
  next_beat_s_ = clock_s_ + times_.beat_s;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && (rank_ == 0 || r == 0)) post(r, {});
  }
}

void Watch::take_own(LastWord own) {
  own.me = me_;
  if (own.leaving && !peer(rank_).word.leaving) next_beat_s_ = clock_s_;
  keep(peer(rank_), own);
}

void Watch::keep(Peer& peer, const LastWord& word) {
  const LastWord& before = peer.word;
  if (word.call != before.call || word.slow != before.slow || word.reading != before.reading ||
      word.leaving != before.leaving) {
    moved_s_ = clock_s_;
  }
  const int rank = before.rank;
  peer.word = word;
  peer.word.rank = rank;
  peer.word.age_s = 0;
  peer.heard_s = clock_s_;
}

void Watch::read_letters() {
  try {
    for (int i = 0; i < kMostLettersARound; ++i) {
      const auto letter = mail_.receive();
      if (!letter) return;
      read(*letter);
    }
  } catch (const std::exception& error) {
    if (!outcome_) {
      lose(rank_, rank_name(peer(rank_).word) + " cannot receive letters: " + error.what(), kHint);
    }
  }
}

void Watch::read(const Mail::Letter& letter) {
  if (letter.from < 0 || letter.from >= size_ || letter.from == rank_) return;
  Peer& sender = peer(letter.from);
  const auto read = unpack(letter.text);
  if (!read) {
    sender.unreadable += 1;
    return;
  }
  keep(sender, read->word);
  switch (read->kind) {
    case ControlLetter::Kind::kBeat:
      return;
    case ControlLetter::Kind::kGiveUp:
      if (rank_ == 0 && !outcome_) {
        lose(letter.from, rank_name(sender.word) + std::string(kGaveUp) + read->message,
             read->hint);
      }
      return;
    case ControlLetter::Kind::kOutcome: {
      const bool from_centre = letter.from == 0 && read->rank >= -1 && read->rank < size_;
      const bool of_centre = letter.from != 0 && read->rank == 0;
      if (!from_centre && !of_centre) {
        sender.unreadable += 1;
        return;
      }
      if (!outcome_) outcome_ = {int(read->rank), read->message, read->hint};
      if (from_centre) {
        ControlLetter answer;
        answer.kind = ControlLetter::Kind::kHeard;
        post(0, std::move(answer));
      }
      return;
    }
    case ControlLetter::Kind::kHeard:
      sender.confirmed = outcome_.has_value();
      return;
  }
}

void Watch::judge() {
  judge_silence();
  if (rank_ != 0) return;
  if (!outcome_) judge_end();
  if (!outcome_) judge_stuck();
}

void Watch::judge_silence() {
  int longest = rank_;  // silent
  for (int r = 0; r < size_; ++r) {
    const bool watched = r != rank_ && (rank_ == 0 || r == 0);
    if (watched && peer(r).heard_s < peer(longest).heard_s) longest = r;
  }
  const Peer& silent = peer(longest);
  if (clock_s_ - silent.heard_s < times_.silence_s) return;
  std::string message = rank_name(silent.word) + " has said nothing for " +
                        strprintf("%g s; its last word: ", times_.silence_s) + said(silent.word);
  std::string hint = kHint;
  if (silent.unreadable > 0) {
    hint = strprintf("%lld letters from it could not be read: is it the same program? ",
                     static_cast<long long>(silent.unreadable)) +
           hint;
  }
  lost_is_silent_ = true;
  lose(longest, message, hint);
}

void Watch::judge_end() {
  const bool all =
      std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.word.leaving; });
  if (all) conclude({.rank = -1, .message = {}, .hint = {}});
}

// The ranks with the most calls wait in the last of them for those that have not begun it. A rank
// that leaves waits for all the others.
void Watch::judge_stuck() {
  if (clock_s_ - moved_s_ < times_.stuck_s) return;
  const auto reached = [](const Peer& p) { return p.word.leaving ? UINT64_MAX : p.word.call; };
  const auto by_calls = [&](const Peer& a, const Peer& b) { return reached(a) < reached(b); };
  const Peer& last = *std::max_element(peers_.begin(), peers_.end(), by_calls);
  const uint64_t least = reached(*std::min_element(peers_.begin(), peers_.end(), by_calls));
  if (least == reached(last)) return judge_standstill();
  for (const Peer& p : peers_) {
    if (reached(p) != least || p.word.slow) continue;
    lose(
        p.word.rank,
        rank_name(p.word) +
            strprintf(" is stuck: it has begun no call for %g s; its last word: ", times_.stuck_s) +
            said(p.word) + "; " + rank_name(last.word) + " waits for it: " + said(last.word),
        kHint);
    return;
  }
}

// Which of the GPUs it is nobody knows: all hosts have queued the same calls. The rank that counts
// as lost is not rank 0, which says it.
void Watch::judge_standstill() {
  const auto excused = [](const Peer& p) { return p.word.slow || p.word.reading; };
  if (!queued_ || std::any_of(peers_.begin(), peers_.end(), excused)) return;
  lose(size_ - 1,
       strprintf("no rank has begun a call for %g s, and none is behind: probably a GPU or NCCL "
                 "hangs; the last word of ",
                 times_.stuck_s) +
           rank_name(peer(0).word) + ": " + said(peer(0).word),
       kHangHint);
}

void Watch::lose(int rank, const std::string& message, const std::string& hint) {
  conclude({rank, one_line(message, kMostMessageBytes), one_line(hint, kMostHintBytes)});
}

void Watch::conclude(Outcome outcome) {
  outcome_ = std::move(outcome);
  decided_here_ = true;
  ControlLetter letter;
  letter.kind = ControlLetter::Kind::kOutcome;
  letter.rank = outcome_->rank;
  letter.message = outcome_->message;
  letter.hint = outcome_->hint;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) post(r, letter);
  }
}

void Watch::post(int to, ControlLetter letter) {
  letter.word = peer(rank_).word;
  try {
    mail_.send(to, pack(letter));
  } catch (const std::exception& error) {
    if (!outcome_) {
      lose(to, rank_name(peer(to).word) + " cannot be reached: " + error.what(), kHint);
    }
  }
}

bool Watch::passed_on() const {
  if (!outcome_) return false;
  if (rank_ != 0 || !decided_here_) return true;
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
    const bool deaf = lost_is_silent_ && p.word.rank == outcome_->rank;
    return p.word.rank == rank_ || p.confirmed || deaf;
  });
}

std::vector<LastWord> Watch::words() const {
  std::vector<LastWord> words;
  for (const Peer& p : peers_) {
    words.push_back(p.word);
    if (p.word.age_s >= 0) words.back().age_s = clock_s_ - p.heard_s;
  }
  return words;
}

}  // namespace assay
