#include "cuda/simt/run_grid.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/math.h"
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

void check_cluster(const char* name, dim3 grid, dim3 block, unsigned cluster,
                   const gpu::GpuKind& kind) {
  if (cluster == 1) return;
  if (!kind.clusters)
    bad_launch(name, "clusters need compute capability 9.0, this GPU has %d.%d",
               kind.capability / 10, kind.capability % 10);
  if (cluster == 0 || cluster > unsigned(kMaxClusterBlocks) || grid.x % cluster != 0)
    bad_launch(name, "clusters of %u blocks, need 1 to 8 that divide the grid's %u", cluster,
               grid.x);
  const unsigned threads = block.x * block.y * block.z;
  if (cluster * round_up(threads, unsigned(kWarpLanes)) > unsigned(kMaxClusterThreads))
    bad_launch(name, "clusters of %u blocks of %u threads, the emulator runs at most %d together",
               cluster, threads, kMaxClusterThreads);
}

// A random order of the numbers of clusters.
std::vector<uint64_t> random_order(Scheduler& scheduler, uint64_t clusters) {
  std::vector<uint64_t> order(clusters);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t i = clusters; i > 1; --i) std::swap(order[i - 1], order[scheduler.random() % i]);
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
              const std::function<void()>& body, const gpu::GpuKind& kind, unsigned cluster) {
  check_launch(name, grid, shape, shared_bytes, size_t(kind.shared_bytes));
  check_cluster(name, grid, shape, cluster, kind);
  const std::lock_guard lock(one_at_a_time);
  Scheduler& scheduler = Scheduler::instance();
  const Schedule schedule = simt::schedule();
  blockDim = shape;
  gridDim = grid;
  scheduler.grid_begins(name, kind, shape, int(cluster), schedule, body);
  const uint64_t clusters = uint64_t{grid.x} * grid.y * grid.z / cluster;
  std::vector<uint64_t> order;
  if (schedule.order == Order::kRandom) order = random_order(scheduler, clusters);
  const KernelRuns runs;
  const FaultGuard faults;
  race_grid_begins(last_serial + 1);
  for (uint64_t i = 0; i < clusters; ++i) {
    const uint64_t c = schedule.order == Order::kForward   ? i
                       : schedule.order == Order::kReverse ? clusters - 1 - i
                                                           : order[i];
    for (unsigned rank = 0; rank < cluster; ++rank) {
      const uint64_t b = c * cluster + rank;
      Block& block = scheduler.block_of_rank(int(rank));
      block.index = {unsigned(b % grid.x), unsigned(b / grid.x % grid.y),
                     unsigned(b / grid.x / grid.y)};
      block.serial = ++last_serial;
      shared_begins(block, shared_bytes);
    }
    race_cluster_begins(int(cluster));
    scheduler.run_cluster();
    for (unsigned rank = 0; rank < cluster; ++rank) shared_ends(scheduler.block_of_rank(int(rank)));
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
