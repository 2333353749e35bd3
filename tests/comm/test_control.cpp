// The control of several ranks, each a thread of this process: how they end, in what time, and that
// nothing hangs. The verdicts themselves are tested with a clock of the test (test_watch.cpp).
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

#include "comm/control.h"
#include "tests/catch.h"
#include "tests/comm/thread_world.h"
#include "tests/data/temp_folder.h"

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define COUNTS_CALLS 1  // the sanitizers have replaced the same functions
#else
#define COUNTS_CALLS 0
#endif

namespace {

// Of this thread, while it counts.
thread_local bool counting = false;
thread_local int allocations = 0, locks = 0;

}  // namespace

#if COUNTS_CALLS
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (counting) ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (counting) ++locks;
  return lock(mutex);
}
#endif

namespace assay::test_control {
namespace {

using Catch::Matchers::ContainsSubstring;
using Clock = std::chrono::steady_clock;
using Fate = ThreadPost::Fate;
using Seconds = std::chrono::duration<double>;

// Under the sanitizers threads are several times slower, and other tests run beside them.
constexpr double kSlower = COUNTS_CALLS ? 1 : 3;
constexpr Control::Times kTimes{.beat_s = 0.02, .silence_s = 0.6 * kSlower, .stuck_s = 1 * kSlower};

double since(Clock::time_point begin) {
  return Seconds(Clock::now() - begin).count();
}
void sleep(double seconds) {
  std::this_thread::sleep_for(Seconds(seconds));
}

// How a rank ended, and when.
struct End {
  int lost = -1;  // of RankLost
  std::string message, hint;
  double noticed_s = 0, ended_s = 0;
};

// Runs `body` on every rank until it returns or throws RankLost or std::runtime_error.
std::vector<End> run_ranks(ThreadPost& post, const std::function<void(int, Control&)>& body,
                           const std::string& folder = "") {
  std::vector<End> ends(size_t(post.size()));
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int rank = 0; rank < post.size(); ++rank) {
    threads.emplace_back([&, rank] {
      End& end = ends[size_t(rank)];
      ThreadWorld world(post, rank);
      try {
        Control control(world, kTimes, "node" + std::to_string(rank), folder);
        try {
          body(rank, control);
        } catch (const RankLost&) {
          end.noticed_s = since(begin);
          throw;
        }
      } catch (const RankLost& lost) {
        end.lost = lost.rank();
        end.message = lost.what();
        end.hint = lost.hint();
      } catch (const std::runtime_error& error) {
        end.message = error.what();
      }
      end.ended_s = since(begin);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

// As a step that waits for the others.
void work_until_lost(Control& control) {
  for (int64_t step = 1;; ++step) {
    control.require_all_there();
    control.doing("exchange", step, uint64_t(step));
    sleep(0.001);
  }
}

// All but `except` have lost `rank`, with one message, which is returned.
std::string message(const std::vector<End>& ends, int rank, int except = -1) {
  std::string message;
  for (size_t r = 0; r < ends.size(); ++r) {
    if (int(r) == except) continue;
    INFO("rank " << r << ": " << ends[r].message);
    REQUIRE(ends[r].lost == rank);
    if (message.empty()) message = ends[r].message;
    REQUIRE(ends[r].message == message);
  }
  return message;
}

TEST_CASE("control: ranks end in order, late ones are waited for") {
  ThreadPost post(4);
  const bool by_hand = GENERATE(false, true);
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    for (int64_t step = 0; step < 100 * (rank + 1); ++step) {
      control.require_all_there();
      control.doing("forward", step, uint64_t(step));
      sleep(0.002);
    }
    if (by_hand) control.finish();
  });
  for (const End& end : ends) {
    REQUIRE(end.message.empty());
    REQUIRE(end.ended_s >= 0.8);
  }
  for (int r = 0; r < 4; ++r) REQUIRE_FALSE(post.receive(r));
}

TEST_CASE("control: a rank whose letters are lost") {
  ThreadPost post(4);
  const int silent = GENERATE(2, 0);
  const auto begin = Clock::now();
  post.set_fault([&](int from, int to, std::string&) {
    return since(begin) > 0.3 && (from == silent || to == silent) ? Fate::kIsLost : Fate::kArrives;
  });
  const auto ends = run_ranks(post, [&](int, Control& control) { work_until_lost(control); });
  const std::string who =
      "rank " + std::to_string(silent) + " (node" + std::to_string(silent) + ")";
  // The last beat that arrived may differ.
  for (int r = 0; r < 4; ++r) {
    const End& end = ends[size_t(r)];
    INFO("rank " << r << ": " << end.message);
    REQUIRE(end.noticed_s >= kTimes.silence_s);
    REQUIRE(end.ended_s < 0.3 + kTimes.silence_s + 6 * kSlower);
    if (r == silent) continue;
    REQUIRE(end.lost == silent);
    const std::string silence = strprintf("%g s", kTimes.silence_s);
    REQUIRE_THAT(end.message,
                 ContainsSubstring(who + " has said nothing for " + silence + "; its last word"));
  }
  // To the silent one it looks as if the others were.
  const int lost = ends[size_t(silent)].lost;
  REQUIRE((silent == 0 ? lost > 0 : lost == 0));
}

TEST_CASE("control: a rank that keeps the others waiting") {
  ThreadPost post(3);
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    if (rank == 1) {
      control.doing("saving", 5, 1, Control::Pace::kSlow);
      sleep(1.5 * kTimes.stuck_s);
      control.require_all_there();
      control.doing("backward", 5, 1);
    } else {
      control.doing("exchange", 5, 2);
    }
    while (true) {
      control.require_all_there();
      sleep(0.001);
    }
  });
  REQUIRE_THAT(message(ends, 1), ContainsSubstring(strprintf(
                                     "rank 1 (node1) is stuck: it has begun no call for %g s; "
                                     "its last word: step 5, backward; rank 0 (node0) waits "
                                     "for it",
                                     kTimes.stuck_s)));
  for (const End& end : ends) REQUIRE(end.noticed_s >= 2.5 * kTimes.stuck_s);
}

TEST_CASE("control: a rank that is held up is ended by the control's thread, others look") {
  ThreadPost post(2);
  const Control::Pace pace = GENERATE(Control::Pace::kSteady, Control::Pace::kSlow);
  std::atomic<bool> held_up = true;
  std::string said;  // by the thread, before it lets rank 0 go on
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    control.doing("training step", 3, 5, rank == 0 ? pace : Control::Pace::kSteady);
    control.calls_are_queued([&, rank](const RankLost& lost) {
      if (rank != 0) return;
      said = lost.what();
      held_up = false;
    });
    if (rank == 1) {
      control.give_up("no space left", "free space");
      control.require_all_there();
    }
    const auto begin = Clock::now();
    while (held_up && since(begin) < Control::kHeldUp + 2) sleep(0.01);
    control.require_all_there();
  });
  const std::string why = message(ends, 1);
  REQUIRE(why == "rank 1 (node1) gave up: no space left");
  if (pace == Control::Pace::kSteady) {
    REQUIRE(said == why);
    REQUIRE(ends[0].noticed_s >= Control::kHeldUp);
  } else {
    REQUIRE(said.empty());
  }
}

TEST_CASE("control: several ranks give up at once") {
  ThreadPost post(5);
  const int givers = GENERATE(1, 3, 5);  // the last ones
  std::atomic<int> most_ms = 0;
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    control.doing("saving", 9, 3, Control::Pace::kSlow);
    sleep(0.05);
    if (rank >= 5 - givers) {
      const auto begin = Clock::now();
      control.give_up("no space left", "free space");
      const int ms = int(since(begin) * 1000);
      for (int most = most_ms; ms > most && !most_ms.compare_exchange_weak(most, ms);) {
      }
    }
    work_until_lost(control);
  });
  REQUIRE(ends[0].lost >= 5 - givers);
  REQUIRE_THAT(message(ends, ends[0].lost), ContainsSubstring(" gave up: no space left"));
  for (const End& end : ends) {
    REQUIRE(end.hint == "free space");
    REQUIRE(end.ended_s < 1.5 * kSlower);
  }
  REQUIRE(most_ms.load() < 1000 * kSlower);
}

TEST_CASE("control: a rank that leaves by an exception") {
  ThreadPost post(3);
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    sleep(0.05);
    if (rank == 1) throw std::runtime_error("something else");
    work_until_lost(control);
  });
  REQUIRE(message(ends, 1, 1) == "rank 1 (node1) gave up: it ended by an error");
  REQUIRE(ends[1].message == "something else");
  REQUIRE(ends[1].ended_s < 1.5 * kSlower);
}

TEST_CASE("control: a rank is lost while the others wait for the end") {
  ThreadPost post(3);
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    if (rank == 2) {
      sleep(0.1);
      control.give_up("too late", "none");
    }
    control.finish();
  });
  REQUIRE(message(ends, 2) == "rank 2 (node2) gave up: too late");
}

TEST_CASE("control: nothing is waited for where the transport hangs") {
  ThreadPost post(3);
  const auto ends = run_ranks(post, [&](int rank, Control& control) {
    control.doing("forward", 1, 1);
    sleep(0.1);
    if (rank == 1) {
      post.hang(1);
      sleep(0.1);
      throw std::runtime_error("rank 1 ends by itself");
    }
    work_until_lost(control);
  });
  REQUIRE_THAT(message(ends, 1, 1), ContainsSubstring("rank 1 (node1) has said nothing"));
  for (const End& end : ends) REQUIRE(end.ended_s - 0.2 < 5.5 * kSlower);
  post.let_go(1);
}

TEST_CASE("control: an outcome that nobody confirms is waited for in bounded time") {
  ThreadPost post(3);
  post.set_fault(
      [&](int, int to, std::string&) { return to == 0 ? Fate::kIsLost : Fate::kArrives; });
  const auto ends = run_ranks(post, [&](int, Control& control) {
    const auto begin = Clock::now();
    control.give_up("nobody hears it", "none");
    if (since(begin) > 4 * kSlower)
      throw std::runtime_error("give_up took " + std::to_string(since(begin)));
    work_until_lost(control);
  });
  REQUIRE(message(ends, 0) == "rank 0 (node0) gave up: nobody hears it");
  for (const End& end : ends) REQUIRE(end.ended_s < 5.5 * kSlower);
}

TEST_CASE("control: rank 0 keeps the last words") {
  const TempFolder folder;
  ThreadPost post(3);
  run_ranks(
      post,
      [&](int rank, Control& control) {
        control.doing(rank == 2 ? "saving" : "exchange", 412, uint64_t(57 + rank));
        sleep(0.2);
        if (rank == 1) control.give_up("enough", "none");
        while (true) {
          control.require_all_there();
          sleep(0.001);
        }
      },
      folder.path());
  const std::vector<LastWord> words = read_last_words(folder.path());
  REQUIRE(words.size() == 3);
  for (int r = 0; r < 3; ++r) {
    const LastWord& word = words[size_t(r)];
    REQUIRE(rank_name(word) == "rank " + std::to_string(r) + " (node" + std::to_string(r) + ")");
    REQUIRE(said(word) == (r == 2 ? "step 412, saving" : "step 412, exchange"));
    REQUIRE(word.call == uint64_t(57 + r));
    REQUIRE(word.age_s >= 0);
    REQUIRE(word.age_s < 1 * kSlower);
  }
}

TEST_CASE("control: saying what a rank does, and looking, neither allocate nor lock") {
  ThreadPost post(2);
  std::atomic<int> found_allocations = 0, found_locks = 0;
  const auto ends = run_ranks(post, [&](int, Control& control) {
    control.doing("first", 0, 0);
    counting = true;
    for (int64_t step = 0; step < 1000; ++step) {
      control.doing("forward", step, uint64_t(step), Control::Pace::kSlow);
      control.require_all_there();
    }
    counting = false;
    found_allocations += allocations;
    found_locks += locks;
  });
  for (const End& end : ends) REQUIRE(end.message.empty());
  REQUIRE(found_allocations == 0);
  REQUIRE(found_locks == 0);
  // The counters count.
  counting = true;
  ::operator delete(::operator new(1));
  std::mutex mutex;
  { const std::lock_guard lock(mutex); }
  counting = false;
  REQUIRE(allocations == COUNTS_CALLS);
  REQUIRE(locks == COUNTS_CALLS);
}

}  // namespace
}  // namespace assay::test_control
