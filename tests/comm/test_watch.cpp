// What the ranks make of each other's letters, with a clock of the test's own: every verdict, its
// time to the beat, and letters that are lost, late, cut, or foreign.
#include <algorithm>
#include <array>
#include <deque>
#include <initializer_list>

#include "comm/call_order.h"
#include "comm/watch.h"
#include "tests/catch.h"
#include "tests/comm/thread_world.h"

namespace assay::test_watch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Kind = ControlLetter::Kind;
using Fate = ThreadPost::Fate;

constexpr ControlTimes kTimes{.beat_s = 1, .silence_s = 20, .stuck_s = 900};
constexpr double kRound = 0.04;

struct Ranks {
  explicit Ranks(int size) : post(size), own(size_t(size)), reasons(size_t(size)) {
    stopped.resize(size_t(size));
    for (int r = 0; r < size; ++r) {
      mails.emplace_back(post, r);
      watches.emplace_back(mails.back(), size, r, kTimes, "node" + std::to_string(r));
      say(r, "backward", 7, 10);
    }
  }

  void say(int rank, const char* what, int64_t step, uint64_t call) {
    LastWord& word = own[size_t(rank)];
    word.what = what;
    word.step = step;
    word.call = call;
  }
  void run(double seconds) {
    for (const double end = now + seconds; now < end; now += kRound) {
      for (size_t r = 0; r < watches.size(); ++r) {
        if (!stopped[r]) watches[r].round(now, own[r], reasons[r]);
      }
    }
  }
  // Runs until this rank knows how the run ended, for at most so long; the time it took.
  double run_until_outcome(int rank, double most) {
    const double begin = now;
    while (!watch(rank).outcome() && now - begin < most) run(kRound);
    return now - begin;
  }
  Watch& watch(int rank) { return watches[size_t(rank)]; }
  bool nobody_lost() const {
    return std::none_of(watches.begin(), watches.end(),
                        [](const Watch& w) { return w.outcome().has_value(); });
  }
  // Every rank but `except` knows that `lost` is lost, by the same message; which is returned.
  std::string message(int lost, int except = -1) {
    std::string message;
    for (int r = 0; r < post.size(); ++r) {
      if (r == except) continue;
      INFO("rank " << r);
      REQUIRE(watch(r).outcome());
      REQUIRE(watch(r).outcome()->rank == lost);
      REQUIRE(watch(r).passed_on());
      if (message.empty()) message = watch(r).outcome()->message;
      REQUIRE(watch(r).outcome()->message == message);
      REQUIRE_FALSE(watch(r).outcome()->hint.empty());
    }
    return message;
  }

  ThreadPost post;
  std::deque<ThreadMail> mails;
  std::deque<Watch> watches;
  std::vector<LastWord> own;
  std::vector<std::optional<Watch::Reason>> reasons;
  std::vector<bool> stopped;
  double now = 5000;
};

TEST_CASE("watch: ranks that beat are not lost, and send little") {
  Ranks ranks(4);
  int letters = 0;
  ranks.post.set_fault([&](int, int, std::string& text) {
    ++letters;
    REQUIRE(text.size() < 4000);
    return Fate::kArrives;
  });
  ranks.run(2000);
  REQUIRE(ranks.nobody_lost());
  REQUIRE(letters > 6 * 1900);
  REQUIRE(letters < 6 * 2010);
  const std::vector<LastWord> words = ranks.watch(0).words();
  REQUIRE(words.size() == 4);
  REQUIRE(rank_name(words[3]) == "rank 3 (node3)");
  REQUIRE(said(words[3]) == "step 7, backward");
  REQUIRE(words[3].call == 10);
  REQUIRE(words[3].age_s <= 1.1);
}

TEST_CASE("watch: one rank alone") {
  Ranks ranks(1);
  ranks.run(100);
  REQUIRE(ranks.nobody_lost());
  SECTION("ends") {
    ranks.own[0].leaving = true;
    ranks.run(1);
    REQUIRE(ranks.watch(0).outcome()->rank == -1);
    REQUIRE(ranks.watch(0).passed_on());
  }
  SECTION("gives up") {
    ranks.reasons[0] = {"the disk is full", "free space"};
    ranks.run(1);
    REQUIRE(ranks.message(0) == "rank 0 (node0) gave up: the disk is full");
  }
}

TEST_CASE("watch: a silent rank is lost everywhere") {
  Ranks ranks(4);
  ranks.run(10);
  ranks.say(2, "exchange of gradients", 412, 11);
  ranks.run(1.5);
  ranks.stopped[2] = true;
  const double took = ranks.run_until_outcome(0, 100);
  REQUIRE(took >= kTimes.silence_s - kTimes.beat_s - 2 * kRound);
  REQUIRE(took <= kTimes.silence_s + 2 * kRound);
  ranks.run(1);
  REQUIRE(ranks.message(2, 2) ==
          "rank 2 (node2) has said nothing for 20 s; its last word: step 412, exchange of "
          "gradients");
  // One that only slept is told of itself.
  ranks.stopped[2] = false;
  ranks.run(1);
  REQUIRE_FALSE(ranks.message(2).empty());
}

TEST_CASE("watch: a rank that never said anything") {
  Ranks ranks(3);
  ranks.stopped[1] = true;
  REQUIRE(ranks.run_until_outcome(0, 100) <= kTimes.silence_s + 2 * kRound);
  ranks.run(1);
  REQUIRE(ranks.message(1, 1) == "rank 1 has said nothing for 20 s; its last word: nothing yet");
}

TEST_CASE("watch: rank 0 silent") {
  Ranks ranks(4);
  ranks.run(10);
  ranks.stopped[0] = true;
  const double took = ranks.run_until_outcome(1, 100);
  REQUIRE(took >= kTimes.silence_s - kTimes.beat_s - 2 * kRound);
  REQUIRE(took <= kTimes.silence_s + 2 * kRound);
  ranks.run(1);
  REQUIRE(ranks.message(0, 0) ==
          "rank 0 (node0) has said nothing for 20 s; its last word: step 7, backward");
  ranks.stopped[0] = false;
  ranks.run(1);
  REQUIRE_FALSE(ranks.message(0).empty());
}

TEST_CASE("watch: only one rank does not hear rank 0: the others are told") {
  Ranks ranks(4);
  ranks.run(10);
  ranks.post.set_fault([](int from, int to, std::string&) {
    return from == 0 && to == 3 ? Fate::kIsLost : Fate::kArrives;
  });
  ranks.run(kTimes.silence_s + 1);
  REQUIRE_THAT(ranks.message(0), ContainsSubstring("rank 0 (node0) has said nothing for 20 s"));
}

TEST_CASE("watch: a pause is not silence") {
  Ranks ranks(3);
  ranks.run(10);
  SECTION("of everybody, as of a stopped job") {
    ranks.now += 3600;
  }
  SECTION("of rank 0, shorter than silence_s") {
    ranks.stopped[0] = true;
    ranks.run(kTimes.silence_s - 2);
    ranks.stopped[0] = false;
  }
  SECTION("of the letters to rank 0, shorter than silence_s") {
    ranks.post.hold(0);
    ranks.run(kTimes.silence_s - 2);
    ranks.post.let_go(0);
  }
  ranks.run(100);
  REQUIRE(ranks.nobody_lost());
}

TEST_CASE("watch: a rank that keeps others waiting is stuck") {
  Ranks ranks(4);
  ranks.run(10);
  for (const int r : {0, 1, 3}) ranks.say(r, "exchange of gradients", 8, 12);
  ranks.say(2, "forward", 8, 11);
  SECTION("for stuck_s") {
    const double took = ranks.run_until_outcome(0, 2000);
    REQUIRE(took >= kTimes.stuck_s);
    REQUIRE(took <= kTimes.stuck_s + 2);
    ranks.run(1);
    REQUIRE(ranks.message(2) ==
            "rank 2 (node2) is stuck: it has begun no call for 900 s; its last word: step 8, "
            "forward; rank 0 (node0) waits for it: step 8, exchange of gradients");
  }
  SECTION("not while any call begins") {
    for (uint64_t i = 0; i < 10; ++i) {
      ranks.run(kTimes.stuck_s - 10);
      ranks.say(2, "forward", 8, 2 + i);  // still the last
    }
    REQUIRE(ranks.nobody_lost());
  }
  SECTION("not while it is slow, and then again for stuck_s") {
    ranks.own[2].slow = true;
    ranks.run(3 * kTimes.stuck_s);
    REQUIRE(ranks.nobody_lost());
    ranks.own[2].slow = false;
    ranks.run(kTimes.stuck_s - 5);
    REQUIRE(ranks.nobody_lost());
    ranks.run(10);
    REQUIRE(ranks.message(2).find("rank 2 (node2) is stuck") == 0);
  }
  SECTION("a slow rank that waits does not protect it") {
    ranks.own[3].slow = true;
    ranks.run(kTimes.stuck_s + 5);
    REQUIRE(ranks.message(2).find("rank 2 (node2) is stuck") == 0);
  }
  SECTION("not when all have come equally far") {
    ranks.say(2, "exchange of gradients", 8, 12);
    ranks.run(3 * kTimes.stuck_s);
    REQUIRE(ranks.nobody_lost());
  }
  SECTION("when the others are through with their run") {
    for (const int r : {0, 1, 3}) {
      ranks.say(r, "forward", 8, 11);
      ranks.own[size_t(r)].leaving = true;
    }
    ranks.run(kTimes.stuck_s + 5);
    REQUIRE_THAT(ranks.message(2),
                 ContainsSubstring("rank 0 (node0) waits for it: the end of its run"));
  }
}

TEST_CASE("watch: where calls are queued on GPUs, equal ones may not stand still") {
  Ranks ranks(3);
  ranks.watch(0).calls_are_queued();
  ranks.run(10);
  for (int r = 0; r < 3; ++r) ranks.say(r, "training step", 8, 12);
  SECTION("for stuck_s") {
    const double took = ranks.run_until_outcome(0, 2000);
    REQUIRE(took >= kTimes.stuck_s);
    REQUIRE(took <= kTimes.stuck_s + 2);
    ranks.run(1);
    REQUIRE(ranks.message(2) ==
            "no rank has begun a call for 900 s, and none is behind: probably a GPU or NCCL hangs; "
            "the last word of rank 0 (node0): step 8, training step");
    REQUIRE_THAT(ranks.watch(1).outcome()->hint, ContainsSubstring("NCCL_DEBUG=INFO"));
  }
  SECTION("not while a call begins") {
    for (uint64_t call = 13; call < 20; ++call) {
      ranks.run(kTimes.stuck_s - 10);
      for (int r = 0; r < 3; ++r) ranks.say(r, "training step", 8, call);
    }
    REQUIRE(ranks.nobody_lost());
  }
  SECTION("not while one of them evaluates or saves") {
    ranks.own[1].slow = true;
    ranks.run(3 * kTimes.stuck_s);
    REQUIRE(ranks.nobody_lost());
  }
  SECTION("not while one of them waits for its data; it is stuck once others wait for it") {
    ranks.own[1].reading = true;
    ranks.run(3 * kTimes.stuck_s);
    REQUIRE(ranks.nobody_lost());
    for (const int r : {0, 2}) ranks.say(r, "training step", 8, 13);
    ranks.run(kTimes.stuck_s + 5);
    REQUIRE(ranks.message(1).find("rank 1 (node1) is stuck") == 0);
  }
  SECTION("one that is behind is named") {
    for (const int r : {0, 1}) ranks.say(r, "training step", 8, 13);
    ranks.run(kTimes.stuck_s + 5);
    REQUIRE(ranks.message(2).find("rank 2 (node2) is stuck") == 0);
  }
}

TEST_CASE("watch: rank 0's own step may be stuck") {
  Ranks ranks(2);
  ranks.say(1, "exchange of gradients", 7, 11);
  ranks.run(kTimes.stuck_s + 5);
  REQUIRE(ranks.message(0).find("rank 0 (node0) is stuck") == 0);
}

// Ranks 0 and 1 share experts, and so do 2 and 3; 0 and 2 are replicas, as are 1 and 3.
struct ExpertRanks {
  using Of = CallOrder::Of;
  Ranks ranks{4};
  std::array<CallOrder, 4> calls{};

  void begin(std::initializer_list<int> of, Of group, int number = 1) {
    for (const int rank : of) {
      for (int i = 0; i < number; ++i) calls[size_t(rank)].begin(group);
      ranks.say(rank, "training step", 8, calls[size_t(rank)].value());
    }
  }
};

TEST_CASE("watch: groups that make different numbers of calls") {
  ExpertRanks r;
  using Of = CallOrder::Of;
  r.begin({0, 1, 2, 3}, Of::kAll, 5);
  SECTION("ranks that have met again have come equally far") {
    r.begin({0, 1}, Of::kExperts, 4);
    r.begin({2, 3}, Of::kExperts, 40);
    for (const Of of : {Of::kReplicas, Of::kAll}) {
      r.begin({0, 1, 2, 3}, of);
      for (const CallOrder& calls : r.calls) REQUIRE(calls.value() == r.calls[0].value());
    }
    r.ranks.run(3 * kTimes.stuck_s);
    REQUIRE(r.ranks.nobody_lost());
  }
  SECTION("one is stuck among experts, in the group of more calls") {
    r.begin({0, 1}, Of::kExperts, 4);
    r.begin({2, 3}, Of::kExperts, 40);
    SECTION("others wait for it with the replicas") {
      r.begin({0, 1}, Of::kReplicas);
    }
    SECTION("others wait for it with all") {
      r.begin({0, 1}, Of::kAll);
    }
    r.begin({2}, Of::kExperts);
    r.ranks.run(kTimes.stuck_s + 5);
    REQUIRE(r.ranks.message(3).find("rank 3 (node3) is stuck") == 0);
  }
  SECTION("one is stuck before it meets its replicas") {
    r.begin({0, 1}, Of::kExperts, 40);
    r.begin({2, 3}, Of::kExperts, 4);
    r.begin({0, 2, 3}, Of::kReplicas);
    r.ranks.run(kTimes.stuck_s + 5);
    REQUIRE(r.ranks.message(1).find("rank 1 (node1) is stuck") == 0);
  }
}

TEST_CASE("watch: calls count up to a bound, and never back") {
  using Of = CallOrder::Of;
  CallOrder calls;
  uint64_t before = calls.value();
  const auto goes_up = [&](Of of, int64_t most) {
    for (int64_t i = 0; i < most; ++i) {
      calls.begin(of);
      if (calls.value() <= before) return false;
      before = calls.value();
    }
    return true;
  };
  REQUIRE(goes_up(Of::kExperts, (1 << 18) - 1));
  REQUIRE_FALSE(goes_up(Of::kExperts, 1));
  REQUIRE(calls.value() == before);
  REQUIRE(goes_up(Of::kReplicas, (1 << 16) - 1));
  REQUIRE(goes_up(Of::kExperts, 10));
  REQUIRE_FALSE(goes_up(Of::kReplicas, 1));
  REQUIRE(calls.value() == before);
  REQUIRE(goes_up(Of::kAll, 1));
  REQUIRE(calls.value() == uint64_t{1} << 34);
}

TEST_CASE("watch: a rank that gives up") {
  Ranks ranks(4);
  ranks.run(10);
  const Watch::Reason disk{"cannot write x:\nno space\tleft", "free space"};
  SECTION("another than rank 0") {
    ranks.reasons[3] = disk;
    ranks.run(3 * kRound);
    REQUIRE(ranks.message(3) == "rank 3 (node3) gave up: cannot write x: no space left");
    REQUIRE(ranks.watch(1).outcome()->hint == "free space");
  }
  SECTION("rank 0") {
    ranks.reasons[0] = disk;
    ranks.run(3 * kRound);
    REQUIRE(ranks.message(0) == "rank 0 (node0) gave up: cannot write x: no space left");
  }
  SECTION("all at once: one of them is the message") {
    for (auto& reason : ranks.reasons) reason = disk;
    ranks.run(3 * kRound);
    REQUIRE(ranks.message(0) == "rank 0 (node0) gave up: cannot write x: no space left");
  }
  SECTION("at length: the same cut message everywhere") {
    std::string length;
    for (int i = 0; i < 10000; ++i) length += "\xC3\xA4";
    ranks.reasons[3] = {length, length};
    ranks.run(3 * kRound);
    REQUIRE(ranks.message(3).size() <= kMostMessageBytes);
    REQUIRE(ranks.message(3).size() >= kMostMessageBytes - 1);
    REQUIRE(ranks.message(3).substr(ranks.message(3).size() - 2) == "\xC3\xA4");
  }
}

TEST_CASE("watch: the end in order") {
  Ranks ranks(4);
  ranks.run(10);
  for (const int r : {0, 1, 3}) ranks.own[size_t(r)].leaving = true;
  ranks.run(100);
  REQUIRE(ranks.nobody_lost());
  SECTION("when the last one comes") {
    ranks.own[2].leaving = true;
    ranks.run(3 * kRound);
    for (int r = 0; r < 4; ++r) {
      REQUIRE(ranks.watch(r).outcome()->rank == -1);
      REQUIRE(ranks.watch(r).passed_on());
      REQUIRE_FALSE(ranks.mails[size_t(r)].receive());  // no letter is left
    }
  }
  SECTION("the last one does not come") {
    ranks.stopped[2] = true;
    ranks.run(kTimes.silence_s + 1);
    REQUIRE_THAT(ranks.message(2, 2), ContainsSubstring("rank 2 (node2) has said nothing"));
  }
}

TEST_CASE("watch: the outcome does not reach one rank") {
  Ranks ranks(3);
  ranks.run(10);
  ranks.post.set_fault([](int, int to, std::string& text) {
    const auto letter = unpack(text);
    return to == 1 && letter->kind == Kind::kOutcome ? Fate::kIsLost : Fate::kArrives;
  });
  ranks.reasons[2] = {"enough", "none"};
  ranks.run(3);
  REQUIRE(ranks.watch(0).outcome());
  REQUIRE_FALSE(ranks.watch(0).passed_on());
  REQUIRE(ranks.watch(2).passed_on());
  // Rank 0 has stopped beating.
  ranks.run(kTimes.silence_s);
  REQUIRE(ranks.watch(1).outcome()->rank == 0);
}

TEST_CASE("watch: a line that fails names the rank behind it") {
  Ranks ranks(3);
  ranks.run(10);
  ranks.post.set_fault(
      [](int, int to, std::string&) { return to == 1 ? Fate::kFails : Fate::kArrives; });
  ranks.run(2);
  REQUIRE(ranks.watch(0).outcome()->message == "rank 1 (node1) cannot be reached: the line is cut");
  REQUIRE(ranks.watch(2).outcome()->rank == 1);
}

TEST_CASE("watch: letters that are none") {
  Ranks ranks(3);
  ranks.run(10);
  ranks.post.set_fault([](int from, int, std::string& text) {
    if (from == 2) text.resize(text.size() - 1);
    return Fate::kArrives;
  });
  ranks.run(kTimes.silence_s + 1);
  REQUIRE(ranks.message(2, 2).find("rank 2 (node2) has said nothing for 20 s") == 0);
  REQUIRE_THAT(ranks.watch(1).outcome()->hint,
               ContainsSubstring("letters from it could not be read: is it the same program?"));
}

TEST_CASE("watch: an outcome that its sender may not decide is ignored") {
  Ranks ranks(3);
  ranks.run(10);
  ControlLetter letter;
  letter.kind = Kind::kOutcome;
  for (const int64_t rank : {-1, 1, 2}) {
    letter.rank = rank;
    ranks.post.send(2, 0, pack(letter));
    ranks.post.send(2, 1, pack(letter));
  }
  for (const int64_t rank : {int64_t{-2}, int64_t{3}, INT64_MAX, INT64_MIN}) {
    letter.rank = rank;
    ranks.post.send(0, 1, pack(letter));
  }
  letter.kind = Kind::kGiveUp;
  ranks.post.send(2, 1, pack(letter));
  ranks.run(10);
  REQUIRE(ranks.nobody_lost());
}

}  // namespace
}  // namespace assay::test_watch
