#include "cuda/simt/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/memory_internal.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/sanitizer.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

constexpr size_t kPage = 4096;

struct Allocation {
  std::byte* base;
  size_t bytes;
  std::byte* mapped;  // a guard page, pages, a guard page
  size_t mapped_bytes;

  std::byte* end() const { return base + bytes; }
  std::byte* guard() const { return mapped + mapped_bytes - kPage; }
};

// All allocations are in one region of addresses. No address is given out twice, so freed memory
// stays inaccessible.
constexpr size_t kRegionBytes = size_t{1} << 40;

struct Registry {
  std::map<uintptr_t, Allocation> by_base;
  std::vector<Allocation> freed;
  std::byte* region = nullptr;
  size_t used = 0;
  HostAccess host_access = HostAccess::kAllowed;
};
Registry& registry() {
  static Registry r;
  return r;
}

// The allocation with the highest base that is not above p, or null.
const Allocation* below(const void* p) {
  auto& all = registry().by_base;
  auto next = all.upper_bound(reinterpret_cast<uintptr_t>(p));
  return next == all.begin() ? nullptr : &std::prev(next)->second;
}

void check_range(const char* what, const void* p, size_t bytes) {
  const Allocation* a = below(p);
  if (a == nullptr || p >= a->end()) return;  // host memory
  const size_t at = size_t(static_cast<const std::byte*>(p) - a->base);
  if (at + bytes > a->bytes)
    throw KernelError(
        strprintf("%s: %zu bytes at byte %zu of an allocation of %zu", what, bytes, at, a->bytes));
}

std::byte* take_addresses(size_t bytes) {
  Registry& r = registry();
  if (r.region == nullptr) {
    void* p =
        mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(p != MAP_FAILED, "cannot reserve addresses for %zu bytes of simulated device memory",
          kRegionBytes);
    r.region = static_cast<std::byte*>(p);
  }
  CHECK(bytes <= kRegionBytes - r.used, "more than %zu bytes of device memory allocated in all",
        kRegionBytes);
  r.used += bytes;
  return r.region + r.used - bytes;
}

struct HostMayAccess {
  HostMayAccess() { open_device_memory(); }
  ~HostMayAccess() { close_device_memory(); }
};

}  // namespace

void open_device_memory() {
  if (!kAsan || registry().host_access == HostAccess::kAllowed) return;
  for (auto& [key, a] : registry().by_base) asan_unpoison(a.base, a.bytes);
}

void close_device_memory() {
  if (!kAsan || registry().host_access == HostAccess::kAllowed) return;
  for (auto& [key, a] : registry().by_base) asan_poison(a.base, a.bytes);
}

void set_host_access(HostAccess access) {
  open_device_memory();
  registry().host_access = access;
  close_device_memory();
}

void* device_malloc(size_t bytes, size_t alignment) {
  CHECK(alignment >= 16 && alignment <= kPage && (alignment & (alignment - 1)) == 0,
        "device_malloc: alignment %zu", alignment);
  const size_t data = round_up(std::max<size_t>(bytes, 1), alignment);
  const size_t pages = round_up(data, kPage);
  Allocation a{
      .base = nullptr, .bytes = bytes, .mapped = nullptr, .mapped_bytes = pages + 2 * kPage};
  a.mapped = take_addresses(a.mapped_bytes);
  if (mprotect(a.mapped + kPage, pages, PROT_READ | PROT_WRITE) != 0)
    throw UserError(strprintf("cannot allocate %zu bytes of simulated device memory", bytes),
                    "use a smaller model or case");
  a.base = a.guard() - data;
  std::memset(a.mapped + kPage, 0xFF, pages);
  asan_poison(a.mapped + kPage, size_t(a.base - a.mapped) - kPage);
  asan_poison(a.end(), size_t(a.guard() - a.end()));
  registry().by_base.emplace(reinterpret_cast<uintptr_t>(a.base), a);
  if (registry().host_access == HostAccess::kForbidden) asan_poison(a.base, bytes);
  return a.base;
}

void device_free(void* p) {
  if (p == nullptr) return;
  const auto found = registry().by_base.find(reinterpret_cast<uintptr_t>(p));
  CHECK(found != registry().by_base.end(), "device_free of %p, which device_malloc did not return",
        p);
  const Allocation a = found->second;
  registry().by_base.erase(found);
  asan_unpoison(a.mapped + kPage, a.mapped_bytes - 2 * kPage);
  madvise(a.mapped, a.mapped_bytes, MADV_DONTNEED);
  CHECK(mprotect(a.mapped, a.mapped_bytes, PROT_NONE) == 0, "mprotect failed");
  registry().freed.push_back(a);
}

bool is_device_pointer(const void* p) {
  const Allocation* a = below(p);
  return a != nullptr && p < a->end();
}

void device_copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check_range("device_copy: destination", to, bytes);
  check_range("device_copy: source", from, bytes);
  const HostMayAccess open;
  std::memmove(to, from, bytes);
}

void device_fill(void* p, int byte, size_t bytes) {
  if (bytes == 0) return;
  check_range("device_fill", p, bytes);
  const HostMayAccess open;
  std::memset(p, byte, bytes);
}

void check_device_memory(const char* kernel) {
  for (auto& [key, a] : registry().by_base) {
    const size_t slack = size_t(a.guard() - a.end());
    asan_unpoison(a.end(), slack);
    const std::byte* bad =
        std::find_if(a.end(), a.guard(), [](std::byte b) { return b != std::byte{0xFF}; });
    asan_poison(a.end(), slack);
    if (bad == a.guard()) continue;
    const size_t at = size_t(bad - a.base);
    std::memset(a.end(), 0xFF, kAsan ? 0 : slack);
    throw KernelError(strprintf(
        "%s: wrote past the end of an allocation of %zu bytes in device memory, at byte %zu",
        kernel, a.bytes, at));
  }
}

DeviceRegion device_region() {
  return {registry().region, registry().used};
}

std::string describe_address(const void* p) {
  for (const auto& [key, a] : registry().by_base)
    if (p >= a.mapped && p < a.mapped + a.mapped_bytes)
      return strprintf("byte %td of an allocation of %zu in device memory",
                       static_cast<const std::byte*>(p) - a.base, a.bytes);
  for (const Allocation& a : registry().freed)
    if (p >= a.mapped && p < a.mapped + a.mapped_bytes)
      return strprintf("byte %td of device memory that was freed (%zu bytes)",
                       static_cast<const std::byte*>(p) - a.base, a.bytes);
  return strprintf("address %p", p);
}

void check_global(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0)
    fail(here, "%s: global address %p is not a multiple of %zu", what, p, alignment);
  if (bytes == 0 || registry().by_base.empty()) return;  // device_malloc is not in use
  const Allocation* a = below(p);
  if (a == nullptr || p >= a->guard()) fail(here, "%s: %p is not in device memory", what, p);
  const size_t at = size_t(static_cast<const std::byte*>(p) - a->base);
  if (at + bytes > a->bytes)
    fail(here, "%s: %zu bytes at byte %zu of an allocation of %zu in device memory", what, bytes,
         at, a->bytes);
}

}  // namespace assay::simt
