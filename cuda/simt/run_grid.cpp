#include "cuda/simt/run_grid.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "cuda/simt/memory.h"
#include "cuda/simt/memory_internal.h"
#include "cuda/simt/race.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

constexpr uint64_t kMaxGridX = (uint64_t{1} << 31) - 1;
constexpr uint64_t kMaxGridYZ = 65535;
constexpr unsigned kMaxBlockZ = 64;

[[noreturn, gnu::format(printf, 2, 3)]] void bad_launch(const char* name, const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  throw KernelError(std::string(name) + ": launch: " + text);
}

void check_launch(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
                  size_t most_shared_bytes) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kMaxGridX || grid.y > kMaxGridYZ ||
      grid.z > kMaxGridYZ)
    bad_launch(name, "grid (%u,%u,%u), need 1 to 2^31 - 1, 65535, 65535", grid.x, grid.y, grid.z);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || block.x > unsigned(kMaxThreads) || block.y > unsigned(kMaxThreads) ||
      block.z > kMaxBlockZ || threads > uint64_t{kMaxThreads})
    bad_launch(name, "block (%u,%u,%u), need 1 to 1024 threads, z up to 64", block.x, block.y,
               block.z);
  if (shared_bytes > most_shared_bytes)
    bad_launch(name, "%zu bytes of dynamic shared memory, at most %zu", shared_bytes,
               most_shared_bytes);
}

uint64_t num_blocks(dim3 grid) {
  return uint64_t{grid.x} * grid.y * grid.z;
}

// A random order of the block numbers.
std::vector<uint64_t> random_order(Scheduler& scheduler, uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[scheduler.random() % i]);
  return order;
}

struct KernelRuns {
  KernelRuns() { open_device_memory(); }
  ~KernelRuns() { close_device_memory(); }
};

std::mutex one_at_a_time;
uint64_t last_serial = 0;

}  // namespace

void set_switch_limit(uint64_t switches) {
  Scheduler::instance().set_switch_limit(switches);
}

void run_grid(const char* name, dim3 grid, dim3 shape, size_t shared_bytes,
              const std::function<void()>& body, const gpu::GpuKind& kind) {
  check_launch(name, grid, shape, shared_bytes, size_t(kind.shared_bytes));
  const std::lock_guard lock(one_at_a_time);
  Scheduler& scheduler = Scheduler::instance();
  const Schedule schedule = simt::schedule();
  Block& block = scheduler.block();
  block.kernel = name;
  block.kind = kind;
  blockDim = shape;
  gridDim = grid;
  scheduler.grid_begins(shape, schedule, body);
  const uint64_t blocks = num_blocks(grid);
  std::vector<uint64_t> order;
  if (schedule.order == Order::kRandom) order = random_order(scheduler, blocks);
  const KernelRuns runs;
  const FaultGuard faults;
  race_grid_begins(last_serial + 1);
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t b = schedule.order == Order::kForward   ? i
                       : schedule.order == Order::kReverse ? blocks - 1 - i
                                                           : order[i];
    blockIdx = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)};
    block.index = blockIdx;
    block.serial = ++last_serial;
    shared_begins(block, shared_bytes);
    race_block_begins(block.serial, block.threads);
    scheduler.run_block();
    shared_ends(block);
  }
  check_device_memory(name);
}

void needs(int capability, const char* what, SourceLocation here) {
  const int has = block().kind.capability;
  if (has >= capability) return;
  fail(here, "%s needs compute capability %d.%d, this GPU has %d.%d", what, capability / 10,
       capability % 10, has / 10, has % 10);
}
void needs_wgmma(const char* what, SourceLocation here) {
  const int has = block().kind.capability;
  if (has == 90) return;
  fail(here, "%s is for compute capability 9.0 only, this GPU has %d.%d", what, has / 10, has % 10);
}

void fail(SourceLocation here, const char* format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const Block& b = block();
  std::string thread;
  if (detail::running != nullptr) {
    const Thread& t = self();
    thread = strprintf(", thread %d (%u,%u,%u)", t.index, t.position.x, t.position.y, t.position.z);
  }
  throw KernelError(strprintf("%s: block (%u,%u,%u)%s: %s: %s", b.kernel, b.index.x, b.index.y,
                              b.index.z, thread.c_str(), short_place(here).c_str(), text));
}

}  // namespace assay::simt
