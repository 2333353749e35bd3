// Turns a memory fault of a kernel into a KernelError: the signal handler resumes the thread in a
// function that leaves its fiber for good. Only on x86-64 Linux without the address sanitizer,
// whose reports are better; elsewhere the process ends as usual.
#include <csignal>
#include <memory>

#include "base/check.h"
#include "cuda/simt/memory_internal.h"
#include "cuda/simt/sanitizer.h"
#include "cuda/simt/scheduler.h"

#if defined(__x86_64__) && defined(__linux__) && !ASSAY_ASAN
#include <pthread.h>
#include <ucontext.h>
#endif

namespace assay::simt {

#if defined(__x86_64__) && defined(__linux__) && !ASSAY_ASAN

namespace {

constexpr size_t kHandlerStackBytes = 32 << 10;

pthread_t kernel_thread;
const void* fault_address;
int fault_has_address;

std::string describe_fault() {
  // The processor gives no address for a misaligned vector access.
  if (!fault_has_address) return "a vector access that is not aligned, or a wild pointer";
  const Stack& stack = *self().fiber.stack;
  if (fault_address < stack.low && fault_address >= stack.low - 4096)
    return "its local variables exceed the 64 KiB stack of an emulated thread";
  return describe_address(fault_address);
}

[[noreturn]] void leave_after_fault() {
  const Block& b = block();
  const Thread& t = self();
  const std::string text =
      strprintf("%s: block (%u,%u,%u), thread %d (%u,%u,%u): memory fault: %s", b.kernel, b.index.x,
                b.index.y, b.index.z, t.index, t.position.x, t.position.y, t.position.z,
                (describe_fault() + " (the address sanitizer's build names the line)").c_str());
  Scheduler::instance().leave_kernel(std::make_exception_ptr(KernelError(text)));
}

void on_signal(int signal, siginfo_t* info, void* context) {
  if (detail::running == nullptr || !pthread_equal(pthread_self(), kernel_thread)) {
    std::signal(signal, SIG_DFL);  // not in a kernel: the fault repeats and ends the process
    return;
  }
  fault_address = info->si_addr;
  fault_has_address = info->si_code > 0 && info->si_code != SI_KERNEL;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  // The thread's frames are dropped: its stack is reused from the top.
  const auto top = reinterpret_cast<uintptr_t>(self().fiber.stack->high) & ~uintptr_t{63};
  registers[REG_RSP] = greg_t(top - 64 - 8);
  registers[REG_RIP] = greg_t(reinterpret_cast<uintptr_t>(&leave_after_fault));
}

}  // namespace

struct FaultGuard::Saved {
  std::unique_ptr<std::byte[]> handler_stack{new std::byte[kHandlerStackBytes]};
  stack_t stack;
  struct sigaction segv, bus;
};

FaultGuard::FaultGuard() {
  kernel_thread = pthread_self();
  static thread_local Saved of_thread;
  saved_ = &of_thread;
  stack_t stack = {};
  stack.ss_sp = saved_->handler_stack.get();
  stack.ss_size = kHandlerStackBytes;
  sigaltstack(&stack, &saved_->stack);
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &saved_->segv);
  sigaction(SIGBUS, &action, &saved_->bus);
}

FaultGuard::~FaultGuard() {
  sigaction(SIGSEGV, &saved_->segv, nullptr);
  sigaction(SIGBUS, &saved_->bus, nullptr);
  sigaltstack(&saved_->stack, nullptr);
}

#else

struct FaultGuard::Saved {};
FaultGuard::FaultGuard() : saved_(nullptr) {}
FaultGuard::~FaultGuard() {}

#endif

}  // namespace assay::simt
