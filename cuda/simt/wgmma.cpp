// wgmma. The 128 threads of a warpgroup issue the same steps (products and commits), each at its
// own time. The first thread records a step; the others are compared with it. A batch runs when the
// schedule chooses, after all threads have committed it. Its tiles are read then, which shows
// writes to them that come too early; or, in some schedules, when the first thread issues the
// product, which shows data that another thread has not written yet.
//
// Accumulators: the first product on an array takes its values and leaves NaNs of one bit pattern;
// the wgmma_wait that covers the last product on the array gives them back. A read of d that comes
// too early gets NaN. A write to d, or the use of another array, is found by the missing pattern.
#include "cuda/simt/wgmma.h"

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "base/small_float.h"
#include "cuda/simt/block.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/wgmma_math.h"

namespace assay::simt {

namespace {

constexpr int kThreads = kWarpgroupThreads;
constexpr int kM = 64;
constexpr int kK = 16;  // bf16; twice as many 8-bit codes
constexpr int kMaxN = 256;
constexpr uint32_t kInFlight = 0xFFF7ACC0u;  // a quiet NaN

// The accumulators of all threads as one tile.
struct Accumulator {
  int n;
  std::vector<float> tile;       // (64, n)
  float* d[kThreads] = {};       // null: not handed over yet, or taken back
  uint64_t last[kThreads] = {};  // step of the last product on it
  int handed_over = 0;
  int taken_back = 0;
};

enum class Kind { kProduct, kProductRegisters, kCommit };

struct Step {
  Kind kind;
  SourceLocation here;
  uint64_t a = 0, b = 0;  // descriptors
  TileOrder a_order = TileOrder::kKMajor, b_order = TileOrder::kKMajor;
  WgmmaElement a_element = WgmmaElement::kBf16, b_element = WgmmaElement::kBf16;
  int n = 0;
  int accumulate = 0;
  std::shared_ptr<Accumulator> accumulator = {};
  // As wgmma_multiply takes them; empty: read when the step runs.
  std::vector<float> a_read = {}, b_read = {};
  int threads = 0;  // number that have issued it
};

struct Fragment {
  // Of d[0]; d[1] is in the next column, d[2] and d[3] 8 rows on, d[4 i] 8 i columns on.
  int row, column;
};
// PTX ISA, "Register Fragments" for wgmma.mma_async.m64nNk16, matrix D; a in registers has the same
// rows.
Fragment fragment(int thread) {
  return {thread / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
}

struct Warpgroup {
  struct OfThread {
    uint64_t issued = 0;            // steps
    uint64_t committed = 0;         // steps
    std::vector<uint64_t> batches;  // steps issued before the end of each batch
    SourceLocation fence, last;
    int fenced = 0;
    std::vector<std::shared_ptr<Accumulator>> held;
  };
  OfThread of_thread[kThreads];
  std::vector<Step> steps;  // not executed yet; steps[0] has number `executed`
  uint64_t executed = 0;

  void execute_before(uint64_t end);
};

struct Warpgroups : Extension {
  std::vector<std::unique_ptr<Warpgroup>> of_index =
      std::vector<std::unique_ptr<Warpgroup>>(kMaxThreads / kThreads);

  void block_ends() override {
    for (const auto& group : of_index) {
      if (!group) continue;
      for (const Warpgroup::OfThread& t : group->of_thread)
        if (!t.held.empty()) fail(t.last, "the block ends before wgmma_wait for this product");
    }
  }
};

struct Me {
  Warpgroup& group;
  int rank;
  Warpgroup::OfThread& thread;
};
Me find_me(SourceLocation here) {
  static uint64_t serial = 0;  // of the block that `groups` belongs to
  static Warpgroups* groups = nullptr;
  Block& b = block();
  if (serial != b.serial) {
    groups = &b.extension<Warpgroups>();
    serial = b.serial;
  }
  const int index = self().index;
  if ((index / kThreads + 1) * kThreads > b.threads)
    fail(here, "wgmma: this warpgroup of the block has fewer than 128 threads");
  auto& group = groups->of_index[size_t(index / kThreads)];
  if (!group) group = std::make_unique<Warpgroup>();
  const int rank = index % kThreads;
  return {*group, rank, group->of_thread[rank]};
}

void copy_fragment(float* tile, int n, int thread, float* d, int into_tile) {
  const Fragment f = fragment(thread);
  float* row[2] = {tile + f.row * n + f.column, tile + (f.row + 8) * n + f.column};
  for (int i = 0; i < n / 8; ++i) {
    for (int half = 0; half < 2; ++half) {
      float* const registers = d + 4 * i + 2 * half;
      float* const elements = row[half] + 8 * i;
      std::memcpy(into_tile ? elements : registers, into_tile ? registers : elements, 8);
    }
  }
}

void hand_over(Accumulator& accumulator, int thread, float* d) {
  copy_fragment(accumulator.tile.data(), accumulator.n, thread, d, 1);
  for (int i = 0; i < accumulator.n / 2; ++i) std::memcpy(d + i, &kInFlight, sizeof(kInFlight));
  accumulator.d[thread] = d;
  ++accumulator.handed_over;
}

void take_back(Accumulator& accumulator, int thread, SourceLocation here) {
  float* const d = accumulator.d[thread];
  for (int i = 0; i < accumulator.n / 2; ++i) {
    if (std::bit_cast<uint32_t>(d[i]) != kInFlight)
      fail(here,
           "wgmma: the accumulator was written, or another array was used, between this product "
           "and its wgmma_wait (element %d)",
           i);
  }
  copy_fragment(accumulator.tile.data(), accumulator.n, thread, d, 0);
  accumulator.d[thread] = nullptr;
  ++accumulator.taken_back;
}

void check_tile(const WgmmaTile& tile, const char* name, SourceLocation here) {
  const uint32_t pattern = tile.span / 16 - 1;  // bits of the row's number that the XOR uses
  if ((tile.start >> 7 & pattern) != 0)
    fail(here,
         "wgmma: %s at shared+%u begins inside the swizzle's pattern: the tile must be aligned to "
         "%u "
         "bytes",
         name, tile.start, tile.span * 8);
  if (tile.base_offset != 0) fail(here, "wgmma: the descriptor of %s has a base offset", name);
}

// An operand in shared memory.
struct Tiled {
  const char* name;
  uint64_t descriptor;
  TileOrder order;
  WgmmaElement element;
  int rows;
};
Tiled a_of(const Step& s) {
  return {"a", s.a, s.a_order, s.a_element, kM};
}
Tiled b_of(const Step& s) {
  return {"b", s.b, s.b_order, s.b_element, s.n};
}

template <typename Element>
struct Numbers {
  float of_code[256];
  Numbers() {
    for (uint32_t code = 0; code < 256; ++code) of_code[code] = Element::decode(code);
  }
};
const float (&numbers(WgmmaElement element))[256] {
  static const Numbers<e4m3> with_3;
  static const Numbers<e5m2> with_2;
  return element == WgmmaElement::kE4M3 ? with_3.of_code : with_2.of_code;
}

int depth(WgmmaElement element) {
  return element == WgmmaElement::kBf16 ? kK : 2 * kK;
}

void gather(float* out, const Tiled& t, SourceLocation here) {
  const WgmmaTile tile = wgmma_tile(t.descriptor);
  const bool inside =
      t.element == WgmmaElement::kBf16
          ? wgmma_gather(out, tile, t.order, t.rows, block().arena, kArenaBytes)
          : wgmma_gather_codes(out, tile, t.rows, numbers(t.element), block().arena, kArenaBytes);
  if (!inside)
    fail(here, "wgmma: %s at shared+%u reaches beyond shared memory (leading %u, stride %u bytes)",
         t.name, tile.start, tile.leading, tile.stride);
}

std::vector<float> gathered(const Tiled& t, SourceLocation here) {
  std::vector<float> out(size_t(t.rows) * size_t(depth(t.element)));
  gather(out.data(), t, here);
  return out;
}

int reads_at_issue(uint64_t step) {
  const Schedule s = schedule();
  return s.order == Order::kReverse || (s.order == Order::kRandom && (s.seed + step) % 2 == 0);
}

void run(const Step& step) {
  alignas(64) float a[kM * 2 * kK];
  alignas(64) float b[kMaxN * 2 * kK];
  if (step.a_read.empty()) gather(a, a_of(step), step.here);
  if (step.b_read.empty()) gather(b, b_of(step), step.here);
  float* const d = step.accumulator->tile.data();
  if (!step.accumulate) std::memset(d, 0, sizeof(float) * size_t(kM) * size_t(step.n));
  const float* const left = step.a_read.empty() ? a : step.a_read.data();
  const float* const right = step.b_read.empty() ? b : step.b_read.data();
  for (int k = 0; k < depth(step.b_element); k += kK)
    wgmma_multiply(d, left + k * kM, right + k * step.n, step.n);
}

void Warpgroup::execute_before(uint64_t end) {
  if (end <= executed) return;
  for (size_t i = 0; i < end - executed; ++i)
    if (steps[i].kind != Kind::kCommit) run(steps[i]);
  steps.erase(steps.begin(), steps.begin() + long(end - executed));
  executed = end;
}

// Reports the reads of an operand to the race detector; one thread does it for the warpgroup.
void note_operand(uint64_t descriptor, TileOrder order, int rows, SourceLocation here) {
  const WgmmaTile tile = wgmma_tile(descriptor);
  const int r_step = order == TileOrder::kMNMajor ? 8 : 1;
  const int k_step = order == TileOrder::kMNMajor ? 1 : 8;
  for (int r = 0; r < rows; r += r_step) {
    for (int k = 0; k < kK; k += k_step) {
      const uint32_t address = wgmma_address(tile, order, r, k);
      if (size_t{address} + 16 <= kArenaBytes) note_async_read(block().arena + address, 16, here);
    }
  }
}

// Issues this thread's next step: the first thread records it, the others are compared with it.
Step& issue(Warpgroup& group, Warpgroup::OfThread& me, const Step& mine) {
  const size_t at = size_t(me.issued - group.executed);
  if (at == group.steps.size()) {
    group.steps.push_back(mine);
    Step& step = group.steps.back();
    if (mine.kind == Kind::kProduct) check_tile(wgmma_tile(mine.a), "a", mine.here);
    if (mine.kind != Kind::kCommit) check_tile(wgmma_tile(mine.b), "b", mine.here);
    if (mine.kind != Kind::kCommit && reads_at_issue(me.issued)) {
      if (mine.kind == Kind::kProduct) step.a_read = gathered(a_of(mine), mine.here);
      step.b_read = gathered(b_of(mine), mine.here);
    }
  }
  Step& step = group.steps[at];
  if (step.kind != mine.kind || step.a != mine.a || step.b != mine.b ||
      step.a_order != mine.a_order || step.b_order != mine.b_order ||
      step.a_element != mine.a_element || step.b_element != mine.b_element || step.n != mine.n ||
      step.accumulate != mine.accumulate || step.here.line != mine.here.line) {
    fail(mine.here,
         "wgmma: the threads of a warpgroup must issue the same; another one had n %d, descriptors "
         "%llx %llx, accumulate %d at line %d, this one n %d, %llx %llx, %d",
         step.n, (unsigned long long)step.a, (unsigned long long)step.b, step.accumulate,
         step.here.line, mine.n, (unsigned long long)mine.a, (unsigned long long)mine.b,
         mine.accumulate);
  }
  ++step.threads;
  ++me.issued;
  return step;
}

Step& issue_product(float* d, const Step& mine) {
  const auto [group, rank, me] = find_me(mine.here);
  if (mine.n % 32 != 0 || mine.n < 32 || mine.n > kMaxN)
    fail(mine.here, "wgmma: n %d, must be 32, 64, ... or 256", mine.n);
  const Accumulator* held = nullptr;
  for (const auto& accumulator : me.held)
    if (accumulator->d[rank] == d) held = accumulator.get();
  if (!held && !me.fenced)
    fail(mine.here, "wgmma: no wgmma_fence after this thread may have accessed the accumulator");
  Step& step = issue(group, me, mine);
  if (!step.accumulator) {
    for (const auto& accumulator : me.held)
      if (accumulator.get() == held) step.accumulator = accumulator;
    if (!held) {
      step.accumulator = std::make_shared<Accumulator>();
      step.accumulator->n = mine.n;
      step.accumulator->tile.resize(size_t(kM) * size_t(mine.n));
    }
  }
  Accumulator& accumulator = *step.accumulator;
  if (held ? held != &accumulator : accumulator.d[rank] != nullptr)
    fail(mine.here, "wgmma: the threads of the warpgroup use accumulators in different orders");
  if (accumulator.n != mine.n)
    fail(mine.here, "wgmma: n %d on an accumulator in flight with n %d", mine.n, accumulator.n);
  if (!held) {
    hand_over(accumulator, rank, d);
    me.held.push_back(step.accumulator);
  }
  accumulator.last[rank] = me.issued - 1;
  me.last = mine.here;
  if (rank == 0) {
    if (mine.kind == Kind::kProduct) note_operand(mine.a, mine.a_order, kM, mine.here);
    note_operand(mine.b, mine.b_order, mine.n, mine.here);
  }
  return step;
}

TileOrder order(int is_mn_major) {
  return is_mn_major ? TileOrder::kMNMajor : TileOrder::kKMajor;
}

}  // namespace

uint64_t wgmma_descriptor(const void* tile, int leading_bytes, int stride_bytes,
                          gpu::Swizzle swizzle, SourceLocation here) {
  needs_wgmma("wgmma", here);
  check_shared("wgmma_descriptor", here, tile, 16, 16);
  constexpr int kLimit = 1 << 18;
  if (leading_bytes < 0 || leading_bytes % 16 != 0 || leading_bytes >= kLimit || stride_bytes < 0 ||
      stride_bytes % 16 != 0 || stride_bytes >= kLimit) {
    fail(here, "wgmma_descriptor: leading %d, stride %d, must be multiples of 16 below %d",
         leading_bytes, stride_bytes, kLimit);
  }
  constexpr uint64_t kMode[] = {0, 3, 2, 1};  // none, 32, 64, 128
  return uint64_t(shared_address(tile) >> 4) | uint64_t(leading_bytes >> 4) << 16 |
         uint64_t(stride_bytes >> 4) << 32 | kMode[int(swizzle)] << 62;
}

void wgmma(float* d, int n, uint64_t a, int a_is_mn_major, uint64_t b, int b_is_mn_major,
           int accumulate, SourceLocation here) {
  issue_product(d, {.kind = Kind::kProduct,
                    .here = here,
                    .a = a,
                    .b = b,
                    .a_order = order(a_is_mn_major),
                    .b_order = order(b_is_mn_major),
                    .n = n,
                    .accumulate = accumulate != 0});
}

void wgmma_codes(float* d, int n, WgmmaElement a_element, uint64_t a, WgmmaElement b_element,
                 uint64_t b, int accumulate, SourceLocation here) {
  issue_product(d, {.kind = Kind::kProduct,
                    .here = here,
                    .a = a,
                    .b = b,
                    .a_element = a_element,
                    .b_element = b_element,
                    .n = n,
                    .accumulate = accumulate != 0});
}

void wgmma_a_in_registers(float* d, int n, const uint32_t (&a)[4], uint64_t b, int b_is_mn_major,
                          int accumulate, SourceLocation here) {
  Step& step = issue_product(d, {.kind = Kind::kProductRegisters,
                                 .here = here,
                                 .b = b,
                                 .b_order = order(b_is_mn_major),
                                 .n = n,
                                 .accumulate = accumulate != 0});
  step.a_read.resize(size_t(kM) * kK);
  const Fragment f = fragment(self().index % kThreads);
  for (int i = 0; i < 4; ++i) {
    float* const to = step.a_read.data() + (i / 2 * 8 + f.column) * kM + f.row + i % 2 * 8;
    to[0] = std::bit_cast<float>(a[i] << 16);
    to[kM] = std::bit_cast<float>(a[i] & 0xFFFF0000u);
  }
}

void wgmma_fence(SourceLocation here) {
  needs_wgmma("wgmma", here);
  find_me(here).thread.fenced = 1;
}

void wgmma_commit(SourceLocation here) {
  const auto [group, rank, me] = find_me(here);
  const Step& step = issue(group, me, {.kind = Kind::kCommit, .here = here});
  me.batches.push_back(me.issued);
  me.committed = me.issued;
  if (rank == 0) note_release(&group);
  if (step.threads == kThreads)
    defer([&group = group, end = me.issued] { group.execute_before(end); });
}

void wgmma_wait_groups(int pending, SourceLocation here) {
  const auto [group, rank, me] = find_me(here);
  if (pending == 0 && me.issued > me.committed)
    fail(here, "wgmma_wait<0>: products were issued, but not committed");
  if (int(me.batches.size()) <= pending) return;
  const uint64_t end = me.batches[me.batches.size() - 1 - size_t(pending)];
  me.batches.erase(me.batches.begin(), me.batches.end() - pending);
  if (group.executed < end)
    wait_until("wgmma_wait", here, nullptr,
               [&group = group, end] { return group.executed >= end; });
  note_acquire(&group);
  std::erase_if(me.held,
                [&me = me, rank = rank, end](const std::shared_ptr<Accumulator>& accumulator) {
                  if (accumulator->last[rank] >= end) return false;
                  take_back(*accumulator, rank, me.last);
                  return true;
                });
  me.fenced = 0;
}

void set_registers(SourceLocation here) {
  needs_wgmma("setmaxnreg", here);
}

}  // namespace assay::simt
