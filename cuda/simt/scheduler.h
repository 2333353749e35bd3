// Decides which thread runs next, of those of a block, or of the blocks of a cluster, which run
// together. One object per process; everything here is called on the thread that called run_grid.
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

  // Sets what the blocks of a cluster have in common, in block_of_rank(0 to blocks - 1).
  void grid_begins(const char* kernel, const gpu::GpuKind& kind, dim3 block_shape, int blocks,
                   Schedule schedule, const std::function<void()>& body);
  // Returns when all threads of the cluster have exited, or throws what one of them threw.
  void run_cluster();

  Thread& thread(int slot) { return threads_[slot]; }
  Block& block() { return *current_; }
  Block& block_of_rank(int rank) { return blocks_[rank]; }

  // Runs other threads until one of them makes the calling thread ready.
  void suspend(const char* what, SourceLocation here, const void* object);
  void make_ready(const ThreadSet& threads) { ready_.insert(threads); }
  void make_ready(int warp_slot, uint32_t lanes) { ready_.insert_warp(warp_slot, lanes); }
  // As suspend, until the predicate is true.
  void park(const char* what, SourceLocation here, const void* object, bool (*ready)(void*),
            void* context);
  void notify() { changed_ = true; }

  Ticket defer(std::function<void()> landing);
  void land(Ticket ticket);

  // Ends the kernel from within; run_cluster throws.
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
  int slots() const;
  void wake_parked();
  void complete_one();
  void abandon();
  [[noreturn]] void report_deadlock();

  struct Landing {
    Block* block;  // of the thread that deferred it
    std::function<void()> effect;
  };

  Block blocks_[kMaxClusterBlocks];
  Block* current_ = blocks_;
  int num_blocks_ = 1;
  int running_ = 0;                     // threads that have not exited
  Thread threads_[kMaxClusterThreads];  // by slot
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
  bool changed_ = false;
  std::map<Ticket, Landing> completions_;
  Ticket last_ticket_ = 0;
  uint64_t switches_ = 0;
  uint64_t switch_limit_ = 1'000'000'000;
};

// barriers.cpp: the barriers and warp collectives of a block.
void rendezvous_begin(const Block& block);
void rendezvous_thread_exits(Thread& thread);

// cluster.cpp: the barrier of a cluster, and what a block must not leave behind.
void cluster_begins(int blocks, int threads);
void cluster_thread_exits(Thread& thread);
void cluster_block_ends(Block& block);  // before its last thread exits

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
std::string describe_threads(const Block& block);  // which threads wait where
std::string short_place(SourceLocation here);      // ops/rmsnorm.cu:17

}  // namespace assay::simt
