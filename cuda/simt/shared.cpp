// Shared memory: an arena for each block that runs, reused by the next one. The dynamic bytes come
// first, then the GPU_SHARED arrays in the order in which threads reach them, each followed by a
// gap. All of it is filled with 0xFF (NaN in float and bf16) for each block. The gaps are checked
// when the block (with clusters: the last of its cluster) ends; under the address sanitizer they
// are poisoned.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "cuda/simt/sanitizer.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

constexpr size_t kGap = 128;
constexpr size_t kMaxStaticBytes = 48 << 10;

struct Piece {
  const char* name;
  const SharedKey* key;  // null: the dynamic bytes
  size_t begin, end;     // in the arena
};

struct Arena {
  std::byte* begin = nullptr;
  std::vector<Piece> pieces = {};
  size_t used = 0;  // the end of the last gap
  size_t static_bytes = 0;

  void* add_piece(const char* name, const SharedKey* key, size_t at, size_t bytes) {
    pieces.push_back({name, key, at, at + bytes});
    // Whole words: the sanitizer can poison the end of a word, not its beginning.
    used = round_up(at + bytes, 16) + kGap;
    asan_unpoison(begin + at, used - at);
    std::memset(begin + at, 0xFF, used - at);
    asan_poison(begin + at + bytes, used - at - bytes);
    return begin + at;
  }
};

constexpr size_t kAllBytes = kArenaBytes * kMaxClusterBlocks;
std::byte* arenas = nullptr;  // one after the other, by rank
Arena arena_of_rank[kMaxClusterBlocks];

void make_arenas() {
  void* p = mmap(nullptr, kAllBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "cannot map %zu bytes for the shared memory of blocks", kAllBytes);
  arenas = static_cast<std::byte*>(p);
  asan_poison(arenas, kAllBytes);
  for (size_t rank = 0; rank < kMaxClusterBlocks; ++rank)
    arena_of_rank[rank].begin = arenas + rank * kArenaBytes;
}

size_t rank_of(const void* shared) {
  return size_t(static_cast<const std::byte*>(shared) - arenas) / kArenaBytes;
}

}  // namespace

void shared_begins(Block& block, size_t dynamic_bytes) {
  if (arenas == nullptr) make_arenas();
  Arena& arena = arena_of_rank[block.rank];
  asan_poison(arena.begin, arena.used);
  arena.pieces.clear();
  arena.static_bytes = 0;
  arena.used = 0;
  block.arena = arena.begin;
  block.dynamic_bytes = dynamic_bytes;
  if (dynamic_bytes > 0) arena.add_piece("dynamic shared memory", nullptr, 0, dynamic_bytes);
}

void shared_ends(Block& block) {
  const Arena& arena = arena_of_rank[block.rank];
  const std::vector<Piece>& pieces = arena.pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t end = i + 1 < pieces.size() ? pieces[i + 1].begin : arena.used;
    const size_t gap = end - pieces[i].end;
    asan_unpoison(arena.begin + pieces[i].end, gap);
    for (size_t at = pieces[i].end; at < end; ++at)
      if (arena.begin[at] != std::byte{0xFF})
        throw KernelError(
            strprintf("%s: block (%u,%u,%u) wrote past the end of %s (%zu bytes), at byte %zu",
                      block.kernel, block.index.x, block.index.y, block.index.z, pieces[i].name,
                      pieces[i].end - pieces[i].begin, at - pieces[i].begin));
    asan_poison(arena.begin + pieces[i].end, gap);
  }
}

void* shared_array(SharedKey& key, size_t bytes, size_t alignment, SourceLocation here) {
  const Block& b = block();
  if (key.block == b.serial) return key.array;
  Arena& arena = arena_of_rank[b.rank];
  key.block = b.serial;
  // With clusters the key may only have been that of another block in the meantime.
  for (const Piece& piece : arena.pieces)
    if (piece.key == &key) return key.array = arena.begin + piece.begin;
  alignment = std::max<size_t>(alignment, 16);
  const size_t begin = round_up(arena.used, alignment);
  size_t& total = arena.static_bytes;
  total += bytes;
  if (total > kMaxStaticBytes)
    fail(here, "GPU_SHARED %s: %zu bytes, %zu in total; at most %zu per block", key.name, bytes,
         total, kMaxStaticBytes);
  // Dynamic shared memory is aligned to 1024 bytes and comes behind the static arrays.
  const size_t before = b.dynamic_bytes > 0 ? round_up(total, size_t{1024}) : total;
  if (before + b.dynamic_bytes > size_t(b.kind.shared_bytes))
    fail(here, "GPU_SHARED %s: %zu bytes of static and %zu of dynamic shared memory, at most %zu",
         key.name, total, b.dynamic_bytes, size_t(b.kind.shared_bytes));
  return key.array = arena.add_piece(key.name, &key, begin, bytes);
}

void* dynamic_shared() {
  return block().arena;
}

uint32_t shared_address(const void* p) {
  return uint32_t(size_t(static_cast<const std::byte*>(p) - arenas) % kArenaBytes);
}
bool is_shared(const void* p) {
  return p >= arenas && p < arenas + size_t(block().cluster_blocks) * kArenaBytes;
}
Block& owner(const void* shared) {
  return block_of_cluster(int(rank_of(shared)));
}

void check_shared(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment) {
  if (!is_shared(p)) fail(here, "%s: %p is not in shared memory", what, p);
  const size_t at = shared_address(p);
  const std::vector<Piece>& pieces = arena_of_rank[rank_of(p)].pieces;
  if (at % alignment != 0)
    fail(here, "%s: shared address %zu is not a multiple of %zu", what, at, alignment);
  for (const Piece& piece : pieces)
    if (at >= piece.begin && at < piece.end) {
      if (at + bytes <= piece.end) return;
      fail(here, "%s: %zu bytes at byte %zu of %s, which has %zu", what, bytes, at - piece.begin,
           piece.name, piece.end - piece.begin);
    }
  fail(here, "%s: shared address %zu is in no array", what, at);
}

}  // namespace assay::simt
