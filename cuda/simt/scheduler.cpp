#include "cuda/simt/scheduler.h"

#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/race.h"

constinit thread_local uint3 threadIdx;
constinit thread_local uint3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace assay::simt {

Scheduler Scheduler::the_one;

void Scheduler::grid_begins(const char* kernel, const gpu::GpuKind& kind, dim3 shape, int blocks,
                            Schedule schedule, const std::function<void()>& body) {
  schedule_ = schedule;
  body_ = &body;
  random_state_ = schedule.seed;
  num_blocks_ = blocks;
  current_ = blocks_;
  const int threads = int(shape.x * shape.y * shape.z);
  for (int rank = 0; rank < blocks; ++rank) {
    Block& block = blocks_[rank];
    block.kernel = kernel;
    block.kind = kind;
    block.rank = rank;
    block.cluster_blocks = blocks;
    block.threads = threads;
    block.first_slot = rank * round_up(threads, kWarpLanes);
    for (int i = 0; i < threads; ++i) {
      const unsigned u = unsigned(i);
      Thread& t = threads_[block.first_slot + i];
      t.block = &block;
      t.index = i;
      t.lane = i % kWarpLanes;
      t.warp = i / kWarpLanes;
      t.slot = block.first_slot + i;
      t.position = {u % shape.x, u / shape.x % shape.y, u / shape.x / shape.y};
    }
  }
}

// One past the last slot in use.
int Scheduler::slots() const {
  const Block& last = blocks_[num_blocks_ - 1];
  return last.first_slot + last.threads;
}

void Scheduler::run_cluster() {
  parked_.clear();
  ready_.clear();
  running_ = 0;
  for (int rank = 0; rank < num_blocks_; ++rank) {
    Block& block = blocks_[rank];
    for (int i = 0; i < block.threads; ++i) {
      threads_[block.first_slot + i].state = Thread::State::kNew;
      ready_.insert(block.first_slot + i);
    }
    block.exited = 0;
    running_ += block.threads;
    rendezvous_begin(block);
  }
  cluster_begins(num_blocks_, blocks_[0].threads);
  current_ = blocks_;
  blockIdx = current_->index;
  changed_ = false;
  switches_ = 0;
  random_deep_ = random() % 2 == 0;
  random_start_ = int(random() % uint64_t(slots()));
  try {
    run_threads();
    while (!completions_.empty()) complete_one();
    for (int rank = 0; rank < num_blocks_; ++rank) {
      current_ = &blocks_[rank];
      for (auto& extension : current_->extensions)
        if (extension) extension->block_ends();
    }
  } catch (...) {
    abandon();
    throw;
  }
  for (int rank = 0; rank < num_blocks_; ++rank) blocks_[rank].extensions.clear();
  detail::running = nullptr;
}

void Scheduler::run_threads() {
  Thread& first = pick();
  start(first);
  activate(first);
  switch_fiber(main_, first.fiber);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// The fibers' frames are dropped, not unwound: the heap memory that they own leaks.
void Scheduler::abandon() {
  completions_.clear();
  for (int rank = 0; rank < num_blocks_; ++rank) {
    Block& block = blocks_[rank];
    for (int i = 0; i < block.threads; ++i) {
      Thread& t = threads_[block.first_slot + i];
      if (t.state == Thread::State::kStarted) stacks_.give(t.fiber.stack);
    }
    block.extensions.clear();
  }
  detail::running = nullptr;
}

void Scheduler::fiber_entry() {
  fiber_entered();
  Scheduler& s = instance();
  for (;;) {
    Thread* next = nullptr;
    Thread& t = self();
    try {
      (*s.body_)();
      s.exit_current();
      if (s.running_ > 0) next = &s.pick();
    } catch (...) {
      s.leave_kernel(std::current_exception());
    }
    if (next == nullptr) {
      s.stacks_.give(t.fiber.stack);
      leave_fiber(t.fiber, s.main_);
    }
    if (next->state == Thread::State::kNew) {
      // The new thread takes over this stack, without a switch.
      next->state = Thread::State::kStarted;
      next->fiber.stack = t.fiber.stack;
      next->fiber.bottom = t.fiber.bottom;
      next->fiber.size = t.fiber.size;
      s.activate(*next);
      continue;
    }
    s.stacks_.give(t.fiber.stack);
    s.activate(*next);
    leave_fiber(t.fiber, next->fiber);
  }
}

void Scheduler::leave_kernel(std::exception_ptr error) {
  error_ = std::move(error);
  leave_fiber(self().fiber, main_);
}

void Scheduler::exit_current() {
  Thread& t = self();
  const bool in_cluster = num_blocks_ > 1;
  if (in_cluster && t.block->exited + 1 == t.block->threads) cluster_block_ends(*t.block);
  t.state = Thread::State::kExited;
  ++t.block->exited;
  --running_;
  rendezvous_thread_exits(t);
  if (in_cluster) cluster_thread_exits(t);
}

void Scheduler::start(Thread& thread) {
  thread.state = Thread::State::kStarted;
  prepare(thread.fiber, stacks_.take(), fiber_entry);
}

void Scheduler::activate(Thread& thread) {
  detail::running = &thread;
  threadIdx = thread.position;
  if (current_ == thread.block) return;
  current_ = thread.block;
  blockIdx = current_->index;
}

void Scheduler::suspend(const char* what, SourceLocation here, const void* object) {
  Thread& t = self();
  t.wait = {what, here, object};
  if (++switches_ > switch_limit_)
    fail(here, "livelock: the block has switched between its threads %lu times; now at %s",
         (unsigned long)(switch_limit_), what);
  Thread& next = pick();
  if (&next == &t) return;
  if (next.state == Thread::State::kNew) start(next);
  activate(next);
  switch_fiber(t.fiber, next.fiber);
}

void Scheduler::park(const char* what, SourceLocation here, const void* object,
                     bool (*ready)(void*), void* context) {
  Thread& t = self();
  t.ready = ready;
  t.ready_context = context;
  parked_.insert(t.slot);
  suspend(what, here, object);
}

void Scheduler::wake_parked() {
  changed_ = false;
  for (ThreadSet left = parked_; !left.empty();) {
    const int i = left.lowest();
    left.remove(i);
    if (!threads_[i].ready(threads_[i].ready_context)) continue;
    parked_.remove(i);
    ready_.insert(i);
  }
}

// Takes a thread out of ready_; false if it is empty.
bool Scheduler::pick_from_ready(int& index) {
  if (ready_.empty()) return false;
  if (schedule_.order == Order::kForward) {
    index = ready_.lowest();
  } else if (schedule_.order == Order::kReverse) {
    index = ready_.highest();
  } else {
    // Half of the blocks stay near one thread for a while, so that a warp or two run far ahead of
    // the others.
    const uint64_t r = random();
    if (!random_deep_ || r % 32 == 0) random_start_ = int((r >> 32) % uint64_t(slots()));
    index = ready_.next(random_start_);
  }
  ready_.remove(index);
  return true;
}

Thread& Scheduler::pick() {
  if (schedule_.order == Order::kRandom) {
    if (!completions_.empty() && random() % 8 == 0) complete_one();
    if (changed_ && random() % 4 == 0) wake_parked();
  }
  for (;;) {
    int index = 0;
    if (pick_from_ready(index)) return threads_[index];
    if (changed_) {
      wake_parked();
    } else if (!completions_.empty()) {
      complete_one();
    } else {
      report_deadlock();
    }
  }
}

void Scheduler::report_deadlock() {
  std::string blocks;
  for (int rank = 0; rank < num_blocks_; ++rank) {
    const Block& b = blocks_[rank];
    blocks += strprintf("%sblock (%u,%u,%u): %s", rank == 0 ? "" : "; ", b.index.x, b.index.y,
                        b.index.z, describe_threads(b).c_str());
  }
  throw KernelError(
      strprintf("%s: deadlock: no thread can run. %s", blocks_[0].kernel, blocks.c_str()));
}

Ticket Scheduler::defer(std::function<void()> landing) {
  const bool now = schedule_.order == Order::kReverse ||
                   (schedule_.order == Order::kRandom && random() % 4 == 0);
  if (now) {
    landing();
    changed_ = true;
    return 0;
  }
  completions_.emplace(++last_ticket_, Landing{current_, std::move(landing)});
  return last_ticket_;
}

void Scheduler::land(Ticket ticket) {
  const auto found = completions_.find(ticket);
  if (found == completions_.end()) return;
  const Landing landing = std::move(found->second);
  completions_.erase(found);
  Block* const before = std::exchange(current_, landing.block);
  landing.effect();
  current_ = before;
  changed_ = true;
}

void Scheduler::complete_one() {
  auto chosen = completions_.begin();
  if (schedule_.order == Order::kRandom) {
    const Ticket first = chosen->first;
    const Ticket last = completions_.rbegin()->first;
    chosen = completions_.lower_bound(first + random() % (last - first + 1));
  }
  land(chosen->first);
}

// SplitMix64.
uint64_t Scheduler::random() {
  uint64_t x = random_state_ += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

}  // namespace assay::simt
