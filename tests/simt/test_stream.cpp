// The SIMT emulator's stream: when queued work runs, and what a recording captures.
#include <functional>
#include <vector>

#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/simt/context.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/stream.h"
#include "cuda/transfer.h"
#include "tests/catch.h"

namespace assay {

namespace {

struct Late {
  Late() { simt::set_pace(simt::Pace::kLate); }
  ~Late() { simt::set_pace(simt::Pace::kPrompt); }
};

void add_kernel(View<float, 1> x, float what) {
  x[0] += what;
}

// One float in device, one in pinned and one in pageable memory.
struct Memory {
  gpu::Context context = simt::make_context();
  Exec on{.gpu = &context};
  View<float, 1> device{take(gpu::Place::kDevice), {1}};
  View<float, 1> pinned{take(gpu::Place::kHostVisible), {1}};
  float host = 0;
  View<float, 1> pageable{&host, {1}};

  Memory() = default;
  Memory(const Memory&) = delete;
  ~Memory() {
    context.memory->release(device.data, gpu::Place::kDevice);
    context.memory->release(pinned.data, gpu::Place::kHostVisible);
  }
  float* take(gpu::Place place) const {
    return static_cast<float*>(context.memory->allocate(sizeof(float), place));
  }
  void add(float what) const {
    gpu::launch(on, {.name = "add", .grid = {}, .block = {}}, add_kernel, device, what);
  }
  float on_device() {
    copy(on, pinned, device);
    wait(on);
    return pinned[0];
  }
};

std::string refused(const Memory& m, const std::function<void()>& calls) {
  try {
    gpu::Graph::capture(m.context, calls);
  } catch (const simt::KernelError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a late stream reads pinned memory when it runs, other memory at the call") {
  const Late late;
  Memory m;
  for (const View<float, 1>& from : {m.pinned, m.pageable}) {
    from[0] = 1;
    copy(m.on, m.device, from);
    from[0] = 2;  // a late stream reads this value from pinned memory
    wait(m.on);
    REQUIRE(m.on_device() == (from.data == m.pinned.data ? 2.0f : 1.0f));
  }
}

TEST_CASE("a late stream runs at a wait or at a copy to memory that is not pinned") {
  const Late late;
  Memory m;
  m.add(3);
  copy(m.on, m.pinned, m.device);
  REQUIRE(m.pinned[0] == 0);
  wait(m.on);
  REQUIRE(m.pinned[0] == 3);
  m.add(4);
  copy(m.on, m.pageable, m.device);
  REQUIRE(m.host == 7);
}

TEST_CASE("a recording runs nothing, and each replay runs what was recorded") {
  for (const simt::Pace pace : {simt::Pace::kPrompt, simt::Pace::kLate}) {
    simt::set_pace(pace);
    Memory m;
    m.pinned[0] = 10;
    float what = 1;
    {
      const gpu::Graph graph = gpu::Graph::capture(m.context, [&] {
        copy(m.on, m.device, m.pinned);
        m.add(what);
      });
      REQUIRE(m.on_device() == 0);
      what = 100;  // the graph has captured the old argument
      m.pinned[0] = 20;
      graph.replay(m.context);
      graph.replay(m.context);
    }  // the queued replays outlive the graph
    m.add(1000);
    REQUIRE(m.on_device() == 1021);
  }
  simt::set_pace(simt::Pace::kPrompt);
}

TEST_CASE("a recording refuses what CUDA refuses, and leaves the stream usable") {
  const Late late;
  Memory m;
  m.add(1);
  const struct {
    const char* what;
    std::function<void()> calls;
  } rows[] = {
      {"waiting", [&] { wait(m.on); }},
      {"allocating memory", [&] { m.take(gpu::Place::kDevice); }},
      {"pinning memory", [&] { m.take(gpu::Place::kHostVisible); }},
      {"a copy of host memory that is not pinned", [&] { copy(m.on, m.device, m.pageable); }},
      {"a copy of host memory that is not pinned", [&] { copy(m.on, m.pageable, m.device); }},
      {"recording", [&] { gpu::Graph::capture(m.context, [] {}); }},
  };
  for (const auto& row : rows) {
    REQUIRE(refused(m, [&] {
              m.add(50);
              row.calls();
            }) == std::string(row.what) + " while a graph is recorded");
  }
  REQUIRE(m.on_device() == 1);
}

TEST_CASE("calls run, are recorded, then replayed, until their key changes") {
  Memory m;
  int queued = 0;
  float what = 1;
  gpu::Replayed<int> calls;
  const auto run = [&](Exec on, int key) {
    calls.run(on, key, [&] {
      queued += 1;
      m.add(what);
    });
  };
  for (int i = 0; i < 4; ++i) run(m.on, 7);
  REQUIRE(queued == 2);
  what = 10;
  for (int i = 0; i < 4; ++i) run(m.on, 8);
  REQUIRE(queued == 4);
  REQUIRE(m.on_device() == 44);

  m.context.launches = gpu::Context::Launches::kWaiting;
  run(m.on, 8);
  REQUIRE(queued == 5);
  REQUIRE(m.on_device() == 54);
}

}  // namespace assay
