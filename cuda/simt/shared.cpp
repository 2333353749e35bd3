// Shared memory: one arena, reused by every block. The dynamic bytes come first, then the
// GPU_SHARED arrays in the order in which threads reach them, each followed by a gap. All of it is
// filled with 0xFF (NaN in float and bf16) for each block. The gaps are checked when the block
// ends; under the address sanitizer they are poisoned.
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
  size_t begin, end;  // in the arena
};

std::byte* arena = nullptr;
std::vector<Piece> pieces;
size_t used = 0;  // the end of the last gap
size_t static_bytes = 0;

std::byte* make_arena() {
  void* p = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(p != MAP_FAILED, "cannot map %zu bytes for a block's shared memory", kArenaBytes);
  return static_cast<std::byte*>(p);
}

void* add_piece(const char* name, size_t begin, size_t bytes) {
  pieces.push_back({name, begin, begin + bytes});
  // Whole words: the sanitizer can poison the end of a word, not its beginning.
  used = round_up(begin + bytes, 16) + kGap;
  asan_unpoison(arena + begin, used - begin);
  std::memset(arena + begin, 0xFF, used - begin);
  asan_poison(arena + begin + bytes, used - begin - bytes);
  return arena + begin;
}

}  // namespace

void shared_begins(Block& block, size_t dynamic_bytes) {
  if (arena == nullptr) {
    arena = make_arena();
    asan_poison(arena, kArenaBytes);
  }
  asan_poison(arena, used);
  pieces.clear();
  static_bytes = 0;
  used = 0;
  block.arena = arena;
  block.dynamic_bytes = dynamic_bytes;
  if (dynamic_bytes > 0) add_piece("dynamic shared memory", 0, dynamic_bytes);
}

void shared_ends(Block& block) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t end = i + 1 < pieces.size() ? pieces[i + 1].begin : used;
    const size_t gap = end - pieces[i].end;
    asan_unpoison(arena + pieces[i].end, gap);
    for (size_t at = pieces[i].end; at < end; ++at)
      if (arena[at] != std::byte{0xFF})
        throw KernelError(
            strprintf("%s: block (%u,%u,%u) wrote past the end of %s (%zu bytes), at byte %zu",
                      block.kernel, block.index.x, block.index.y, block.index.z, pieces[i].name,
                      pieces[i].end - pieces[i].begin, at - pieces[i].begin));
    asan_poison(arena + pieces[i].end, gap);
  }
}

void* shared_array(SharedKey& key, size_t bytes, size_t alignment, SourceLocation here) {
  const Block& b = block();
  if (key.block == b.serial) return key.array;
  alignment = std::max<size_t>(alignment, 16);
  const size_t begin = round_up(used, alignment);
  static_bytes += bytes;
  if (static_bytes > kMaxStaticBytes)
    fail(here, "GPU_SHARED %s: %zu bytes, %zu in total; at most %zu per block", key.name, bytes,
         static_bytes, kMaxStaticBytes);
  // Dynamic shared memory is aligned to 1024 bytes and comes behind the static arrays.
  const size_t before = b.dynamic_bytes > 0 ? round_up(static_bytes, size_t{1024}) : static_bytes;
  if (before + b.dynamic_bytes > size_t(b.kind.shared_bytes))
    fail(here, "GPU_SHARED %s: %zu bytes of static and %zu of dynamic shared memory, at most %zu",
         key.name, static_bytes, b.dynamic_bytes, size_t(b.kind.shared_bytes));
  key.block = b.serial;
  key.array = add_piece(key.name, begin, bytes);
  return key.array;
}

void* dynamic_shared() {
  return block().arena;
}

uint32_t shared_address(const void* p) {
  return uint32_t(static_cast<const std::byte*>(p) - arena);
}
bool is_shared(const void* p) {
  return p >= arena && p < arena + kArenaBytes;
}

void check_shared(const char* what, SourceLocation here, const void* p, size_t bytes,
                  size_t alignment) {
  if (!is_shared(p)) fail(here, "%s: %p is not in shared memory", what, p);
  const size_t at = shared_address(p);
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
