// Fibers: flows of control with their own stacks.
#pragma once

#include <cstddef>
#if !defined(__x86_64__) || defined(ASSAY_SIMT_UCONTEXT)
#include <ucontext.h>
#endif

namespace assay::simt {

// The distance between stacks is not a multiple of a page, so that the tops of neighbours are in
// different cache sets.
struct Stack {
  std::byte* low = nullptr;  // the page below is a guard
  std::byte* high = nullptr;
};

class StackPool {
 public:
  static constexpr int kStacks = 2048;
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

// A suspended fiber.
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

// `entry` must begin with fiber_entered() and never return.
void prepare(Fiber& fiber, Stack* stack, void (*entry)());
// Returns when another fiber switches to `from`.
void switch_fiber(Fiber& from, Fiber& to);
// As switch_fiber, but `from` is never resumed.
[[noreturn]] void leave_fiber(Fiber& from, Fiber& to);
void fiber_entered();

}  // namespace assay::simt
