#include "cuda/simt/threads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/simt/race.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {

constinit Thread* detail::running = nullptr;

Block& block() {
  return Scheduler::instance().block();
}
Block& block_of_cluster(int rank) {
  return Scheduler::instance().block_of_rank(rank);
}

size_t Block::new_extension_id() {
  static size_t next = 0;
  return next++;
}

void wait_until(const char* what, SourceLocation here, const void* object, bool (*ready)(void*),
                void* context) {
  if (ready(context)) return;
  Scheduler::instance().park(what, here, object, ready, context);
}
void notify() {
  Scheduler::instance().notify();
}
Ticket defer(std::function<void()> landing) {
  return Scheduler::instance().defer(std::move(landing));
}
void land(Ticket ticket) {
  Scheduler::instance().land(ticket);
}

namespace {

struct ShuffleArgument {
  uint64_t value;
  int source;
  SourceLocation here;
};

int source_lane(Shuffle kind, int lane, int operand, int width) {
  const int first = lane & -width;
  int source = lane;
  switch (kind) {
    case Shuffle::kIndex:
      return first + (operand & (width - 1));
    case Shuffle::kXor:
      source = lane ^ operand;
      break;
    case Shuffle::kUp:
      source = lane - operand;
      break;
    case Shuffle::kDown:
      source = lane + operand;
      break;
  }
  return source >= first && source < first + width ? source : lane;
}

void exchange(void* const (&args)[kWarpLanes], uint32_t mask) {
  uint64_t value[kWarpLanes];
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    value[lane] = static_cast<ShuffleArgument*>(args[lane])->value;
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    auto& a = *static_cast<ShuffleArgument*>(args[lane]);
    if (!(mask >> a.source & 1))
      fail(a.here, "shuffle: lane %d reads lane %d, which is absent", lane, a.source);
    a.value = value[a.source];
  }
}

struct VoteArgument {
  uint32_t value;
  uint32_t result;
};

// Stores result(value) for every lane.
template <typename F>
void vote(void* const (&args)[kWarpLanes], uint32_t mask, F result) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    auto& a = *static_cast<VoteArgument*>(args[std::countr_zero(left)]);
    a.result = result(a.value);
  }
}
template <typename F>
void for_lanes(void* const (&args)[kWarpLanes], uint32_t mask, F f) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    f(lane, static_cast<VoteArgument*>(args[lane])->value);
  }
}

}  // namespace

uint64_t shuffle_bits(const char* what, Shuffle kind, uint64_t value, int operand, int width,
                      SourceLocation here) {
  if (width < 1 || width > kWarpLanes || (width & (width - 1)) != 0)
    fail(here, "%s: width %d, need a power of two up to 32", what, width);
  ShuffleArgument a{value, source_lane(kind, self().lane, operand, width), here};
  warp_collective(what, here, kAllLanes, &a, exchange);
  return a.value;
}

uint32_t ballot(int condition, SourceLocation here) {
  VoteArgument a{condition != 0, 0};
  warp_collective("ballot", here, kAllLanes, &a, [](void* const(&args)[kWarpLanes], uint32_t mask) {
    uint32_t bits = 0;
    for_lanes(args, mask, [&](int lane, uint32_t v) { bits |= v << lane; });
    vote(args, mask, [&](uint32_t) { return bits; });
  });
  return a.result;
}

uint32_t match_any(uint32_t value, SourceLocation here) {
  VoteArgument a{value, 0};
  warp_collective(
      "match_any", here, kAllLanes, &a, [](void* const(&args)[kWarpLanes], uint32_t mask) {
        vote(args, mask, [&](uint32_t mine) {
          uint32_t bits = 0;
          for_lanes(args, mask, [&](int lane, uint32_t v) { bits |= uint32_t{v == mine} << lane; });
          return bits;
        });
      });
  return a.result;
}

uint32_t warp_max_u32(uint32_t value, SourceLocation here) {
  VoteArgument a{value, 0};
  warp_collective("warp_max_u32", here, kAllLanes, &a,
                  [](void* const(&args)[kWarpLanes], uint32_t mask) {
                    uint32_t most = 0;
                    for_lanes(args, mask, [&](int, uint32_t v) { most = std::max(most, v); });
                    vote(args, mask, [&](uint32_t) { return most; });
                  });
  return a.result;
}

namespace {

float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

}  // namespace

// Atomic, because no other thread runs between the read and the write.
int32_t atomic_add(int32_t* p, int32_t value, SourceLocation here) {
  race_atomic(p, sizeof(*p), here);
  const int32_t old = *p;
  *p = int32_t(uint32_t(old) + uint32_t(value));
  return old;
}
uint32_t atomic_add(uint32_t* p, uint32_t value, SourceLocation here) {
  race_atomic(p, sizeof(*p), here);
  const uint32_t old = *p;
  *p = old + value;
  return old;
}
int64_t atomic_add(int64_t* p, int64_t value, SourceLocation here) {
  race_atomic(p, sizeof(*p), here);
  const int64_t old = *p;
  *p = int64_t(uint64_t(old) + uint64_t(value));
  return old;
}
uint32_t atomic_max(uint32_t* p, uint32_t value, SourceLocation here) {
  race_atomic(p, sizeof(*p), here);
  const uint32_t old = *p;
  *p = std::max(old, value);
  return old;
}
uint32_t atomic_load(const uint32_t* p, SourceLocation here) {
  race_atomic_load(p, sizeof(*p), here);
  return *p;
}
void fence_device(SourceLocation) {
  race_fence_device();
}

void reduce_add(float* p, const float (&v)[4], SourceLocation here) {
  needs(90, "reduce_add", here);
  check_global("reduce_add", here, p, sizeof v, sizeof v);
  note_read(p, sizeof v, here);
  note_write(p, sizeof v, here);
  for (int i = 0; i < 4; ++i) p[i] = flushed(flushed(p[i]) + flushed(v[i]));
}

}  // namespace assay::simt
