#include "cuda/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"
#include "cuda/simt/sanitizer.h"

namespace assay::simt {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = (kAsan ? 256 : 64) << 10;
constexpr size_t kStride = kStackBytes + 832;

[[maybe_unused]] Fiber* left = nullptr;  // the fiber that switched last

}  // namespace

void StackPool::map() {
  bytes_ = kStride * kStacks + kPage;
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "no address space for %zu bytes of stacks", bytes_);
  memory_ = static_cast<std::byte*>(p);
}

StackPool::~StackPool() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

Stack* StackPool::take() {
  if (num_free_ > 0) {
    Stack* stack = free_[--num_free_];
    // The frames of an abandoned thread are still poisoned.
    asan_unpoison(stack->low, size_t(stack->high - stack->low));
    return stack;
  }
  if (memory_ == nullptr) map();
  CHECK(num_made_ < kStacks, "more than %d stacks in use", kStacks);
  Stack& stack = stacks_[num_made_];
  std::byte* begin = memory_ + kStride * size_t(num_made_);
  std::byte* guard = begin + (kPage - reinterpret_cast<uintptr_t>(begin) % kPage) % kPage;
  CHECK(mprotect(guard, kPage, PROT_NONE) == 0, "mprotect of a guard page failed");
  stack.low = guard + kPage;
  stack.high = begin + kStride;
  ++num_made_;
  return &stack;
}

void StackPool::give(Stack* stack) {
  free_[num_free_++] = stack;
}

#if defined(__x86_64__) && !defined(ASSAY_SIMT_UCONTEXT)

// Saves the callee-saved registers, exchanges the stack pointers, restores the registers and
// returns on the new stack.
extern "C" void assay_simt_switch(void** save, void* load);
asm(R"(
.text
.globl assay_simt_switch
.type assay_simt_switch, @function
assay_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size assay_simt_switch, .-assay_simt_switch
)");

void prepare(Fiber& fiber, Stack* stack, void (*entry)()) {
  const uintptr_t top = reinterpret_cast<uintptr_t>(stack->high) & ~uintptr_t{63};
  uintptr_t* at = reinterpret_cast<uintptr_t*>(top);
  *--at = 0;  // entry has no caller; the unwinder stops here
  *--at = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--at = 0;
  fiber = {.stack_pointer = at,
           .stack = stack,
           .bottom = stack->low,
           .size = size_t(stack->high - stack->low)};
}

static void exchange(Fiber& from, Fiber& to) {
  assay_simt_switch(&from.stack_pointer, to.stack_pointer);
}

#else

void prepare(Fiber& fiber, Stack* stack, void (*entry)()) {
  fiber.stack = stack;
  fiber.fake_stack = nullptr;
  fiber.bottom = stack->low;
  fiber.size = size_t(stack->high - stack->low);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack->low;
  fiber.context.uc_stack.ss_size = fiber.size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
}

static void exchange(Fiber& from, Fiber& to) {
  swapcontext(&from.context, &to.context);
}

#endif

void switch_fiber(Fiber& from, Fiber& to) {
#if ASSAY_ASAN
  left = &from;
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  exchange(from, to);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#else
  exchange(from, to);
#endif
}

void leave_fiber(Fiber& from, Fiber& to) {
#if ASSAY_ASAN
  left = &from;
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
#endif
  exchange(from, to);
  __builtin_unreachable();
}

void fiber_entered() {
#if ASSAY_ASAN
  // The first entry comes from the operating system's thread, whose bounds become known here.
  __sanitizer_finish_switch_fiber(nullptr, &left->bottom, &left->size);
#endif
}

}  // namespace assay::simt
