// Lanes of the SIMT emulator: only edges order a lane and the main stream, so that a missing edge
// changes a result in one of the paces.
#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "cuda/graph.h"
#include "cuda/lane.h"
#include "cuda/launch.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/stream.h"
#include "cuda/transfer.h"
#include "tests/catch.h"

namespace assay {

namespace {

constexpr simt::Pace kPaces[] = {simt::Pace::kPrompt, simt::Pace::kLate, simt::Pace::kLaneFirst,
                                 simt::Pace::kLaneLast};

struct AtPace {
  explicit AtPace(simt::Pace pace) { simt::set_pace(pace); }
  ~AtPace() { simt::set_pace(simt::Pace::kPrompt); }
};

void set_kernel(View<float, 1> x, float value) {
  x[0] = value;
}
void combine_kernel(View<float, 1> out, View<float, 1> in, float factor) {
  out[0] = factor * out[0] + in[0];
}

struct Numbers {
  gpu::Context context = simt::make_context();
  Exec main{.gpu = &context};
  Lane lane{main};
  View<float, 1> made = take(), moved = take(), result = take();

  Numbers() = default;
  Numbers(const Numbers&) = delete;
  ~Numbers() {
    for (const auto& x : {made, moved, result}) {
      context.memory->release(x.data, gpu::Place::kDevice);
    }
  }
  View<float, 1> take() const {
    return {static_cast<float*>(context.memory->allocate(sizeof(float), gpu::Place::kDevice)), {1}};
  }
  void set(Exec on, View<float, 1> x, float value) const {
    gpu::launch(on, {.name = "set", .grid = {}, .block = {}}, set_kernel, x, value);
  }
  void combine(Exec on, View<float, 1> out, View<float, 1> in, float factor) const {
    gpu::launch(on, {.name = "combine", .grid = {}, .block = {}}, combine_kernel, out, in, factor);
  }
  float value(View<float, 1> x) const {
    float host = 0;
    copy_bytes(main, &host, x.data, sizeof host);
    wait(main);
    return host;
  }
};

// Three rounds in which main makes a number, the lane moves it, and main adds what was moved. Two
// edges a round: the lane moves behind what main has done, the addition before included; main adds
// behind the move. `missing` is the edge that round 1 leaves out.
enum Edge { kNothing, kMoveBehindMade, kAddBehindMove };
void rounds(const Numbers& n, Edge missing) {
  for (int round = 0; round < 3; ++round) {
    const auto edge = [&](Edge which, Exec later, Exec earlier) {
      if (round != 1 || which != missing) follow(later, earlier);
    };
    const Exec lane = n.lane.exec();
    n.set(n.main, n.made, float(round + 1));
    edge(kMoveBehindMade, lane, n.main);
    n.combine(lane, n.moved, n.made, 0);
    edge(kAddBehindMove, n.main, lane);
    n.combine(n.main, n.result, n.moved, 10);
  }
}

std::set<float> results(Edge missing, bool recorded) {
  std::set<float> all;
  for (const simt::Pace pace : kPaces) {
    const AtPace at(pace);
    const Numbers n;
    if (recorded) {
      const gpu::Graph graph = gpu::Graph::capture(n.context, [&] { rounds(n, missing); });
      graph.replay(n.context);
      n.set(n.main, n.result, 0);
      n.set(n.main, n.moved, 7);
      graph.replay(n.context);
    } else {
      rounds(n, missing);
    }
    all.insert(n.value(n.result));
  }
  return all;
}

std::string refused(const Numbers& n, const std::function<void()>& calls) {
  try {
    gpu::Graph::capture(n.context, calls);
  } catch (const simt::KernelError& error) {
    return error.what();
  }
  return "";
}

struct Looks : gpu::Watcher {
  int count = 0;
  void check() override { count += 1; }
};
struct Lost : gpu::Watcher {
  void check() override { throw UserError("a rank is lost", "none"); }
};

}  // namespace

TEST_CASE("a missing edge changes a result in some pace, with and without a recording") {
  for (const bool recorded : {false, true}) {
    REQUIRE(results(kNothing, recorded) == std::set<float>{123});
    for (const Edge missing : {kMoveBehindMade, kAddBehindMove}) {
      const std::set<float> got = results(missing, recorded);
      REQUIRE(got.count(123) == 1);  // the prompt pace hides it
      REQUIRE(got.size() > 1);
    }
  }
}

TEST_CASE("a lane that comes last runs only as far as main or a wait needs it") {
  const AtPace at(simt::Pace::kLaneLast);
  const Numbers n;
  n.set(n.lane.exec(), n.moved, 5);
  REQUIRE(n.value(n.moved) == 0);
  wait(n.lane.exec());
  REQUIRE(n.value(n.moved) == 5);
}

TEST_CASE("a lane that comes first overtakes main unless it follows it") {
  const AtPace at(simt::Pace::kLaneFirst);
  const Numbers n;
  n.set(n.main, n.moved, 1);
  n.set(n.lane.exec(), n.moved, 5);
  REQUIRE(n.value(n.moved) == 1);
  n.set(n.main, n.moved, 2);
  follow(n.lane.exec(), n.main);
  n.set(n.lane.exec(), n.moved, 5);
  REQUIRE(n.value(n.moved) == 2);  // read before the lane had its turn
  wait(n.lane.exec());
  REQUIRE(n.value(n.moved) == 5);
}

TEST_CASE("an operation holds up its stream, and what follows it, until it is done") {
  for (const simt::Pace pace : kPaces) {
    const AtPace at(pace);
    const Numbers n;
    int begun = 0, asked = 0;
    bool arrived = false;
    simt::enqueue_operation(simt::stream_of(n.lane.exec()), [&]() -> simt::Poll {
      begun += 1;
      return [&] {
        asked += 1;
        return arrived;
      };
    });
    n.set(n.lane.exec(), n.moved, 3);
    const auto& memory = *n.context.memory;
    REQUIRE(!memory.done(*n.lane.exec().gpu));
    REQUIRE(begun == 1);
    n.set(n.main, n.made, 4);  // does not need the lane
    if (pace != simt::Pace::kLaneFirst) REQUIRE(memory.done(n.context));
    follow(n.main, n.lane.exec());
    n.combine(n.main, n.made, n.moved, 10);
    REQUIRE(!memory.done(n.context));
    arrived = true;
    REQUIRE(n.value(n.made) == 43);
    REQUIRE(begun == 1);
    REQUIRE(asked >= 2);
  }
}

TEST_CASE("a replay begins a recorded operation anew") {
  for (const simt::Pace pace : kPaces) {
    const AtPace at(pace);
    const Numbers n;
    int begun = 0;
    const gpu::Graph graph = gpu::Graph::capture(n.context, [&] {
      follow(n.lane.exec(), n.main);
      n.set(n.main, n.made, 1);
      follow(n.lane.exec(), n.main);
      simt::enqueue_operation(simt::stream_of(n.lane.exec()), [&]() -> simt::Poll {
        begun += 1;
        return [] { return true; };
      });
      follow(n.main, n.lane.exec());
    });
    REQUIRE(begun == 0);
    graph.replay(n.context);
    graph.replay(n.context);
    wait(n.main);
    REQUIRE(begun == 2);
  }
}

TEST_CASE("a recording refuses lanes that are not forked from it or not joined to it") {
  const AtPace at(simt::Pace::kLate);
  const Numbers n;
  const Exec lane = n.lane.exec();
  REQUIRE(refused(n, [&] { n.set(lane, n.moved, 1); }) ==
          "work on a stream that does not follow the recorded one, while a graph is recorded");
  REQUIRE(refused(n, [&] { follow(n.main, lane); }) ==
          "an edge from a stream outside of the graph that is recorded");
  REQUIRE(refused(n, [&] {
            follow(lane, n.main);
            n.set(lane, n.moved, 1);
          }) == "the recorded stream does not follow all work of a graph");
  REQUIRE(n.value(n.moved) == 0);
}

TEST_CASE("a watch is called while a wait lasts, and its exception ends the wait") {
  Numbers n;
  Looks looks;
  simt::enqueue_operation(nullptr,
                          [&]() -> simt::Poll { return [&] { return looks.count >= 3; }; });
  n.context.watch = &looks;
  wait(n.main);
  REQUIRE(looks.count == 3);
  bool over = false;
  simt::enqueue_operation(nullptr, [&]() -> simt::Poll { return [&] { return over; }; });
  Lost lost;
  n.context.watch = &lost;
  REQUIRE_THROWS_AS(wait(n.main), UserError);
  over = true;
  n.context.watch = nullptr;
  wait(n.main);
}

TEST_CASE("a wait behind one launch is watched too, and names what failed") {
  Numbers n;
  bool over = false;
  simt::enqueue_operation(nullptr, [&]() -> simt::Poll { return [&] { return over; }; });
  Lost lost;
  n.context.watch = &lost;
  std::string why;
  try {
    wait_for_launch(n.main, "combine");
  } catch (const UserError& error) {
    why = error.what();
  }
  REQUIRE(why == "combine failed: a rank is lost");
  over = true;
  n.context.watch = nullptr;
  wait_for_launch(n.main, "combine");
}

TEST_CASE("on the CPU a lane runs its call at once") {
  const Exec main{.threads = 2};
  const Lane lane(main);
  REQUIRE(lane.exec().gpu == nullptr);
  REQUIRE(lane.exec().threads == 2);
  follow(lane.exec(), main);
  int from = 3, to = 0;
  copy_bytes(lane.exec(), &to, &from, sizeof to);
  REQUIRE(to == 3);
}

}  // namespace assay
