#include "cuda/simt/scheduler.h"

#include <utility>

#include "base/check.h"

constinit thread_local uint3 threadIdx;
constinit thread_local uint3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace assay::simt {

Scheduler Scheduler::the_one;

void Scheduler::grid_begins(dim3 shape, Schedule schedule, const std::function<void()>& body) {
  schedule_ = schedule;
  body_ = &body;
  random_state_ = schedule.seed;
  block_.threads = int(shape.x * shape.y * shape.z);
  for (int i = 0; i < block_.threads; ++i) {
    const unsigned u = unsigned(i);
    Thread& t = threads_[i];
    t.index = i;
    t.lane = i % kWarpLanes;
    t.warp = i / kWarpLanes;
    t.position = {u % shape.x, u / shape.x % shape.y, u / shape.x / shape.y};
  }
}

void Scheduler::run_block() {
  for (int i = 0; i < block_.threads; ++i) threads_[i].state = Thread::State::kNew;
  block_.exited = 0;
  exited_.clear();
  parked_.clear();
  ready_.clear();
  ready_.insert_first(block_.threads);
  changed_ = false;
  switches_ = 0;
  random_deep_ = random() % 2 == 0;
  random_start_ = int(random() % uint64_t(block_.threads));
  rendezvous_begin(block_.threads);
  try {
    run_threads();
    while (!completions_.empty()) complete_one();
    for (auto& extension : block_.extensions)
      if (extension) extension->block_ends();
  } catch (...) {
    abandon();
    throw;
  }
  block_.extensions.clear();
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
  for (int i = 0; i < block_.threads; ++i)
    if (threads_[i].state == Thread::State::kStarted) stacks_.give(threads_[i].fiber.stack);
  completions_.clear();
  block_.extensions.clear();
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
      if (s.block_.exited < s.block_.threads) next = &s.pick();
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
  t.state = Thread::State::kExited;
  exited_.insert(t.index);
  ++block_.exited;
  rendezvous_thread_exits(t);
}

void Scheduler::start(Thread& thread) {
  thread.state = Thread::State::kStarted;
  prepare(thread.fiber, stacks_.take(), fiber_entry);
}

void Scheduler::activate(Thread& thread) {
  detail::running = &thread;
  threadIdx = thread.position;
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
  parked_.insert(t.index);
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
    if (!random_deep_ || r % 32 == 0) random_start_ = int((r >> 32) % uint64_t(block_.threads));
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
  throw KernelError(strprintf("%s: deadlock: no thread can run. block (%u,%u,%u): %s",
                              block_.kernel, block_.index.x, block_.index.y, block_.index.z,
                              describe_threads(*this).c_str()));
}

Ticket Scheduler::defer(std::function<void()> landing) {
  const bool now = schedule_.order == Order::kReverse ||
                   (schedule_.order == Order::kRandom && random() % 4 == 0);
  if (now) {
    landing();
    changed_ = true;
    return 0;
  }
  completions_.emplace(++last_ticket_, std::move(landing));
  return last_ticket_;
}

void Scheduler::land(Ticket ticket) {
  const auto found = completions_.find(ticket);
  if (found == completions_.end()) return;
  const std::function<void()> landing = std::move(found->second);
  completions_.erase(found);
  landing();
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
