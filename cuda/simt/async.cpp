// cp.async: 16-byte copies of a thread, in groups. At the issue the destination is filled with
// 0xFF, so that every schedule shows a read or write that comes too early. A committed group lands
// when the schedule chooses, at the latest when its thread waits for it.
#include "cuda/simt/async.h"

#include <cstring>
#include <vector>

#include "cuda/simt/block.h"
#include "cuda/simt/mbarrier.h"

namespace assay::simt {

namespace {

constexpr int kBytes = 16;

struct Copy {
  std::byte* shared;
  const std::byte* global;
  int bytes;
};

// Copies are numbered in the order of issue.
struct ThreadCopies {
  std::vector<Copy> copies;
  size_t landed = 0;
  std::vector<size_t> group_end;  // per committed group
  size_t groups_done = 0;         // groups waited for

  void land_before(size_t end) {
    for (; landed < end; ++landed) {
      const Copy& c = copies[landed];
      std::memcpy(c.shared, c.global, size_t(c.bytes));
      std::memset(c.shared + c.bytes, 0, size_t(kBytes - c.bytes));
    }
  }
};

struct Copies : Extension {
  std::vector<ThreadCopies> of_thread{size_t(block().threads)};
};

ThreadCopies& mine() {
  return block().extension<Copies>().of_thread[size_t(self().index)];
}

}  // namespace

void cp_async16(void* shared, const void* global, int bytes, SourceLocation here) {
  if (bytes != 0 && bytes != kBytes) {
    fail(here, "cp_async16: %d bytes, must be 0 or 16", bytes);
  }
  check_shared("cp_async16", here, shared, kBytes, kBytes);
  if (bytes > 0) {
    check_global("cp_async16", here, global, kBytes, kBytes);
    note_read(global, kBytes, here);
  }
  note_write(shared, kBytes, here);  // cp.async belongs to the generic proxy, unlike bulk copies
  std::memset(shared, 0xFF, kBytes);
  mine().copies.push_back(
      {static_cast<std::byte*>(shared), static_cast<const std::byte*>(global), bytes});
}

void cp_async_commit(SourceLocation) {
  ThreadCopies& mine_now = mine();
  const size_t end = mine_now.copies.size();
  const size_t begin = mine_now.group_end.empty() ? 0 : mine_now.group_end.back();
  mine_now.group_end.push_back(end);
  if (end > begin) defer([&mine_now, end] { mine_now.land_before(end); });
}

void cp_async_wait_groups(int pending, SourceLocation) {
  ThreadCopies& mine_now = mine();
  if (mine_now.group_end.size() <= mine_now.groups_done + size_t(pending)) return;
  mine_now.groups_done = mine_now.group_end.size() - size_t(pending);
  mine_now.land_before(mine_now.group_end[mine_now.groups_done - 1]);
}

void cp_async_mbarrier_arrive(uint64_t* barrier, SourceLocation here) {
  check_shared("cp_async_mbarrier_arrive", here, barrier, sizeof(*barrier), alignof(uint64_t));
  note_release(barrier);
  ThreadCopies& mine_now = mine();
  const size_t end = mine_now.copies.size();
  defer([&mine_now, end, barrier, here] {
    mine_now.land_before(end);
    mbarrier_arrive_landed("cp_async_mbarrier_arrive", barrier, here);
  });
}

void fence_proxy_async(SourceLocation here) {
  needs(90, "fence_proxy_async", here);
  note_proxy_fence();
}

}  // namespace assay::simt
