// Flows of control on stacks of their own.
#pragma once

#include <cstddef>
#if !defined(__x86_64__) || defined(ASSAY_SIMT_UCONTEXT)
#include <ucontext.h>
#endif

namespace assay::simt {

// Stacks lie at a distance that is no multiple of a page: neighbours' tops fall into different
// cache sets.
struct Stack {
  std::byte* low = nullptr;  // the page below is a guard
  std::byte* high = nullptr;
};

class StackPool {
 public:
  static constexpr int kStacks = 1024;
  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  Stack* take();
  void give(Stack* stack);

 private:
  void map();

  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  Stack stacks_[kStacks];
  Stack* free_[kStacks];
  int num_free_ = 0;
  int num_made_ = 0;
};

// A flow that does not run.
struct Fiber {
#if defined(__x86_64__) && !defined(ASSAY_SIMT_UCONTEXT)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  Stack* stack = nullptr;  // null: the operating system's thread
  // For the address sanitizer.
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
};

// `entry` never returns; it begins with fiber_entered().
void prepare(Fiber& fiber, Stack* stack, void (*entry)());
// Returns when somebody switches to `from`.
void switch_fiber(Fiber& from, Fiber& to);
// As switch_fiber, and `from` is never resumed.
[[noreturn]] void leave_fiber(Fiber& from, Fiber& to);
void fiber_entered();

}  // namespace assay::simt
