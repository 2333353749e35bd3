// A profile by events on the SIMT emulator: calls are recorded and replayed with it, and every
// replay is counted.
#include <cstring>

#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/profile.h"
#include "cuda/simt/context.h"
#include "cuda/simt/stream.h"
#include "tests/catch.h"

namespace assay {

namespace {

void count_kernel(View<float, 1> x) {
  x[0] += 1;
}

struct Work {
  gpu::Context context = simt::make_context();
  View<float, 1> sum{
      static_cast<float*>(context.memory->allocate(sizeof(float), gpu::Place::kHostVisible)), {1}};
  ~Work() { context.memory->release(sum.data, gpu::Place::kHostVisible); }

  Exec with(Profile* profile) { return {.profile = profile, .gpu = &context}; }
  void op(Exec on, const char* name) const {
    const ProfileScope timed(on, name, {.bytes = 4, .flops = 1});
    gpu::launch(on, {.name = "count", .grid = {}, .block = {}}, count_kernel, sum);
  }
};

Profile::Entry entry(const Profile& profile, const char* name) {
  for (const Profile::Entry& e : profile.entries()) {
    if (std::strcmp(e.name, name) == 0) return e;
  }
  return {name, 0, 0, {}};
}

}  // namespace

TEST_CASE("a profile by events counts every replay, and does not keep calls from being recorded") {
  for (const simt::Pace pace : {simt::Pace::kPrompt, simt::Pace::kLate}) {
    simt::set_pace(pace);
    Work work;
    Profile profile(&work.context);
    gpu::Replayed<int> calls;
    int queued = 0;
    const Exec on = work.with(&profile);
    for (int i = 0; i < 4; ++i) {
      work.op(on, "apart");
      calls.run(on, 7, [&] {
        queued += 1;
        const ProfileScope outer(on, "outer", {.bytes = 8, .flops = 2});
        work.op(on, "inner");
        work.op(on, "inner");
      });
    }
    profile.settle(on);
    REQUIRE(queued == 2);  // directly, then recorded
    REQUIRE(work.sum[0] == 12);
    for (const char* name : {"apart", "outer"}) {
      const Profile::Entry e = entry(profile, name);
      REQUIRE(e.calls == 4);
      REQUIRE(e.cost.flops == (e.cost.bytes == 32 ? 8 : 4));
      REQUIRE(e.seconds > 0);
    }
    REQUIRE(entry(profile, "inner").calls == 0);  // part of "outer"
    profile.clear();
    profile.settle(on);
    REQUIRE(profile.entries().empty());
  }
  simt::set_pace(simt::Pace::kPrompt);
}

TEST_CASE("calls start over with another profile, and without one") {
  Work work;
  gpu::Replayed<int> calls;
  int queued = 0;
  const auto run = [&](Profile* profile) {
    const Exec on = work.with(profile);
    calls.run(on, 7, [&] {
      queued += 1;
      work.op(on, "op");
    });
  };
  for (int i = 0; i < 3; ++i) run(nullptr);
  REQUIRE(queued == 2);
  for (int round = 0; round < 2; ++round) {
    Profile profile(&work.context);
    for (int i = 0; i < 3; ++i) run(&profile);
    profile.settle(work.with(&profile));
    REQUIRE(queued == 4 + 2 * round);
    REQUIRE(entry(profile, "op").calls == 3);
  }
  for (int i = 0; i < 3; ++i) run(nullptr);
  REQUIRE(queued == 8);
  REQUIRE(work.sum[0] == 12);

  Profile by_waits;
  for (int i = 0; i < 3; ++i) run(&by_waits);
  REQUIRE(queued == 11);  // each one waits, and none is recorded
  REQUIRE(entry(by_waits, "op").calls == 3);
  Profile on_a_cpu(nullptr);
  REQUIRE(on_a_cpu.by_events() == nullptr);
}

}  // namespace assay
