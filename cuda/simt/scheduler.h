// Decides which thread of a block runs next. One object per process; everything here is called on
// the thread that called run_grid.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <string>

#include "cuda/simt/block.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/thread_set.h"

namespace assay::simt {

class Scheduler {
 public:
  static Scheduler& instance() { return the_one; }

  void grid_begins(dim3 block_shape, Schedule schedule, const std::function<void()>& body);
  // Returns when all threads of block_ have exited, or throws what one of them threw.
  void run_block();

  Thread& thread(int i) { return threads_[i]; }
  Block& block() { return block_; }

  // Runs other threads until one of them makes the calling thread ready.
  void suspend(const char* what, SourceLocation here, const void* object);
  void make_ready(const ThreadSet& threads) { ready_.insert(threads); }
  void make_ready(int warp, uint32_t lanes) { ready_.insert_warp(warp, lanes); }
  // As suspend, until the predicate is true.
  void park(const char* what, SourceLocation here, const void* object, bool (*ready)(void*),
            void* context);
  void notify() { changed_ = true; }

  Ticket defer(std::function<void()> landing);
  void land(Ticket ticket);

  // Ends the kernel from within; run_block throws.
  [[noreturn]] void leave_kernel(std::exception_ptr error);

  uint64_t random();
  void set_switch_limit(uint64_t switches) { switch_limit_ = switches; }

 private:
  static Scheduler the_one;

  static void fiber_entry();
  void run_threads();
  Thread& pick();
  bool pick_from_ready(int& index);
  void start(Thread& thread);
  void activate(Thread& thread);
  void exit_current();
  void wake_parked();
  void complete_one();
  void abandon();
  [[noreturn]] void report_deadlock();

  Block block_;
  Thread threads_[kMaxThreads];
  StackPool stacks_;
  Fiber main_;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr error_;
  Schedule schedule_;
  uint64_t random_state_ = 0;
  int random_start_ = 0;
  bool random_deep_ = false;
  ThreadSet ready_;   // can run, or not started
  ThreadSet parked_;  // in wait_until
  ThreadSet exited_;
  bool changed_ = false;
  std::map<Ticket, std::function<void()>> completions_;
  Ticket last_ticket_ = 0;
  uint64_t switches_ = 0;
  uint64_t switch_limit_ = 1'000'000'000;
};

// barriers.cpp: the barriers and warp collectives of a block.
void rendezvous_begin(int threads);
void rendezvous_thread_exits(Thread& thread);

// fault.cpp: while one exists, a memory fault of a kernel becomes a KernelError.
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;

 private:
  struct Saved;
  Saved* saved_;
};

// shared.cpp
void shared_begins(Block& block, size_t dynamic_bytes);
void shared_ends(Block& block);

// thread_dump.cpp
std::string describe_threads(Scheduler& scheduler);  // which threads wait where
std::string short_place(SourceLocation here);        // ops/rmsnorm.cu:17

}  // namespace assay::simt
