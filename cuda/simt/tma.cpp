// Bulk copies. A load's destination is filled with 0xFF at the issue and gets its data when the
// schedule lets it land. A committed store reads its source and writes its destination when the
// schedule chooses, at the latest in the waits of its thread.
//
// The order of elements in a shared tile: PTX ISA, "Tensor copies", tiled mode: the box row by row,
// innermost dimension first, then the swizzle's XOR on shared addresses (swizzled() in
// wgmma_math.h).
#include "cuda/simt/tma.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/simt/block.h"
#include "cuda/simt/cluster.h"
#include "cuda/simt/mbarrier.h"
#include "cuda/simt/tensor_map.h"
#include "cuda/simt/wgmma_math.h"

namespace assay::simt {

namespace {

constexpr int kPiece = 16;  // bytes that stay together under every swizzle

struct Tile {
  SoftTensorMap map;
  std::array<int, 5> at;
  uint32_t shared;  // address

  int64_t row_bytes() const { return map.box[0] * 2; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 1; i < 5; ++i) n *= map.box[i];
    return n;
  }
  int64_t bytes() const { return rows() * row_bytes(); }
};

Tile make_tile(const char* what, const gpu::TensorMap& map, const void* shared,
               const std::array<int, 5>& at, int rank, SourceLocation here) {
  Tile tile = {.map = {}, .at = at, .shared = 0};
  std::memcpy(&tile.map, map.opaque, sizeof(tile.map));
  if (tile.map.magic != kTensorMapMagic) fail(here, "%s: not a tensor map", what);
  if (tile.map.rank != rank) {
    fail(here, "%s: %d coordinates for a tensor map of rank %d", what, rank, tile.map.rank);
  }
  // The hardware ends a kernel with an illegal instruction where a row does not begin at a piece
  // (seen on an H200); the documentation does not say it.
  if (int64_t{at[0]} * 2 % kPiece != 0) {
    fail(here, "%s: innermost coordinate %d, must be a multiple of %d elements", what, at[0],
         kPiece / 2);
  }
  // PTX requires 128 bytes. With a swizzle, 8 rows of the span: the pattern repeats there, and
  // wgmma's descriptor requires it.
  const size_t alignment = tile.map.span == 16 ? 128 : size_t(tile.map.span) * 8;
  check_shared(what, here, shared, size_t(tile.bytes()), alignment);
  check_global(what, here, tile.map.base, size_t(tile.map.bytes), kPiece);
  tile.shared = shared_address(shared);
  return tile;
}

// Calls f(address, row) for each row of the box: its shared address before the swizzle, and its row
// of the tensor, or null if that is outside.
template <typename F>
void for_each_row(const Tile& tile, F f) {
  const SoftTensorMap& m = tile.map;
  uint32_t address = tile.shared;
  int i[5] = {};
  for (int64_t row = 0; row < tile.rows(); ++row, address += uint32_t(tile.row_bytes())) {
    const std::byte* global = m.base;
    for (int d = 1; d < 5; ++d) {
      const int64_t x = int64_t{tile.at[size_t(d)]} + i[d];
      if (x < 0 || x >= m.dim[d]) {
        global = nullptr;
        break;
      }
      global += x * m.stride[d];
    }
    f(address, global);
    for (int d = 1; d < 5 && ++i[d] == m.box[d]; ++d) i[d] = 0;
  }
}

// The bytes of a row of the box that are inside dimension 0, and their position in the row of the
// tensor.
struct Inside {
  int64_t begin, end;  // bytes of the box's row
  int64_t global;      // offset of the box's row in the tensor's row
};
Inside inside(const Tile& tile) {
  const int64_t x = tile.at[0], dim = tile.map.dim[0], box = tile.map.box[0];
  const int64_t begin = std::clamp<int64_t>(-x, 0, box);
  const int64_t end = std::clamp<int64_t>(dim - x, begin, box);
  return {begin * 2, end * 2, x * 2};
}

void load_now(const Tile& tile, std::byte* arena) {
  const Inside in = inside(tile);
  const int64_t row_bytes = tile.row_bytes();
  alignas(kPiece) std::byte part[512];
  for_each_row(tile, [&](uint32_t address, const std::byte* row) {
    const std::byte* from = part;
    if (row != nullptr && in.begin == 0 && in.end == row_bytes) {
      from = row + in.global;
    } else {
      std::memset(part, 0, size_t(row_bytes));
      if (row != nullptr && in.begin < in.end)
        std::memcpy(part + in.begin, row + in.global + in.begin, size_t(in.end - in.begin));
    }
    for (int64_t i = 0; i < row_bytes; i += kPiece)
      std::memcpy(arena + swizzled(address + uint32_t(i), tile.map.span), from + i, kPiece);
  });
}

template <typename F>
void for_each_global_row(const Tile& tile, F f) {
  const Inside in = inside(tile);
  if (in.begin == in.end) return;
  for_each_row(tile, [&](uint32_t, const std::byte* row) {
    if (row != nullptr) f(row + in.global + in.begin, size_t(in.end - in.begin));
  });
}

// `shared` and `barrier` are in the same block.
void load(const char* what, const gpu::TensorMap& map, void* shared, uint64_t* barrier,
          const std::array<int, 5>& at, int rank, SourceLocation here) {
  const Tile tile = make_tile(what, map, shared, at, rank, here);
  const int64_t bytes = tile.bytes();
  std::byte* const arena = owner(shared).arena;
  for_each_global_row(tile, [&](const std::byte* p, size_t n) { note_read(p, n, here); });
  note_async_write(shared, size_t(bytes), here);
  const uint32_t phase = mbarrier_copy_begins(what, barrier, here);
  std::memset(shared, 0xFF, size_t(bytes));
  defer([=] {
    load_now(tile, arena);
    mbarrier_copy_ends(what, barrier, phase, bytes, here);
  });
}

// --- Stores

// Read once, then written once; write_now() reads first if needed.
struct Store {
  Tile tile;
  std::vector<std::byte> data;  // in pieces of 16 bytes, once read
  bool read = false, written = false;

  void read_now(std::byte* arena) {
    if (read) return;
    read = true;
    data.reserve(size_t(tile.bytes()));
    for_each_row(tile, [&](uint32_t address, const std::byte*) {
      for (int64_t i = 0; i < tile.row_bytes(); i += kPiece) {
        const std::byte* const piece = arena + swizzled(address + uint32_t(i), tile.map.span);
        data.insert(data.end(), piece, piece + kPiece);
      }
    });
  }
  void write_now(std::byte* arena) {
    read_now(arena);
    if (written) return;
    written = true;
    const Inside in = inside(tile);
    const std::byte* from = data.data();
    for_each_row(tile, [&](uint32_t, const std::byte* row) {
      if (row != nullptr && in.begin < in.end) {
        std::memcpy(const_cast<std::byte*>(row) + in.global + in.begin, from + in.begin,
                    size_t(in.end - in.begin));
      }
      from += tile.row_bytes();
    });
    data = {};
  }
};

struct Group {
  std::vector<std::shared_ptr<Store>> stores;
  Ticket read = 0, write = 0;
};

struct Stores : Extension {
  struct OfThread {
    std::vector<std::shared_ptr<Store>> open;  // not committed
    SourceLocation last_store;
    std::vector<Group> groups;
    size_t read_waited = 0, waited = 0;  // groups
  };
  std::vector<OfThread> of_thread{size_t(block().threads)};

  // The hardware frees shared memory when the block ends, even if a store has not read it yet.
  void block_ends() override {
    for (const OfThread& t : of_thread) {
      if (!t.open.empty()) fail(t.last_store, "tma_store without bulk_commit");
      if (t.read_waited < t.groups.size())
        fail(t.last_store, "the block ends before bulk_wait_read for this tma_store");
    }
  }
};

Stores::OfThread& mine() {
  return block().extension<Stores>().of_thread[size_t(self().index)];
}

}  // namespace

void tma_load(void* shared, const gpu::TensorMap& map, uint64_t* barrier,
              const std::array<int, 5>& at, int rank, SourceLocation here) {
  needs(90, "tma_load", here);
  load("tma_load", map, shared, barrier, at, rank, here);
}

void tma_load_multicast(void* shared, const gpu::TensorMap& map, uint64_t* barrier, uint32_t blocks,
                        const std::array<int, 5>& at, int rank, SourceLocation here) {
  constexpr const char* kWhat = "tma_load_multicast";
  needs(90, kWhat, here);
  if (blocks == 0 || blocks > 0xFFFF)
    fail(here, "%s: blocks %x, must be a mask of 1 to 16 bits", kWhat, blocks);
  for (int to = 0; blocks >> to != 0; ++to) {
    if ((blocks >> to & 1) == 0) continue;
    load(kWhat, map, in_cluster(kWhat, shared, to, here),
         static_cast<uint64_t*>(in_cluster(kWhat, barrier, to, here)), at, rank, here);
  }
}

void bulk_load(void* shared, const void* global, int bytes, uint64_t* barrier,
               SourceLocation here) {
  needs(90, "bulk_load", here);
  if (bytes <= 0 || bytes % kPiece != 0) {
    fail(here, "bulk_load: %d bytes, must be a positive multiple of 16", bytes);
  }
  check_shared("bulk_load", here, shared, size_t(bytes), kPiece);
  check_global("bulk_load", here, global, size_t(bytes), kPiece);
  note_read(global, size_t(bytes), here);
  note_async_write(shared, size_t(bytes), here);
  const uint32_t phase = mbarrier_copy_begins("bulk_load", barrier, here);
  std::memset(shared, 0xFF, size_t(bytes));
  defer([=] {
    std::memcpy(shared, global, size_t(bytes));
    mbarrier_copy_ends("bulk_load", barrier, phase, bytes, here);
  });
}

void tma_store(const gpu::TensorMap& map, const void* shared, const std::array<int, 5>& at,
               int rank, SourceLocation here) {
  needs(90, "tma_store", here);
  auto store = std::make_shared<Store>();
  store->tile = make_tile("tma_store", map, shared, at, rank, here);
  note_async_read(shared, size_t(store->tile.bytes()), here);
  for_each_global_row(store->tile, [&](const std::byte* p, size_t n) { note_write(p, n, here); });
  Stores::OfThread& t = mine();
  t.open.push_back(std::move(store));
  t.last_store = here;
}

void bulk_commit(SourceLocation here) {
  needs(90, "bulk_commit", here);
  Stores::OfThread& t = mine();
  Group group;
  group.stores.swap(t.open);
  if (!group.stores.empty()) {
    std::byte* const arena = block().arena;
    const auto stores = group.stores;
    group.read = defer([=] {
      for (const auto& store : stores) store->read_now(arena);
    });
    group.write = defer([=] {
      for (const auto& store : stores) store->write_now(arena);
    });
  }
  t.groups.push_back(std::move(group));
}

void bulk_wait_read_groups(int pending, SourceLocation here) {
  needs(90, "bulk_wait", here);
  Stores::OfThread& t = mine();
  for (; t.read_waited + size_t(pending) < t.groups.size(); ++t.read_waited)
    if (const Ticket ticket = t.groups[t.read_waited].read) land(ticket);
}

void bulk_wait_groups(int pending, SourceLocation here) {
  bulk_wait_read_groups(pending, here);
  Stores::OfThread& t = mine();
  for (; t.waited + size_t(pending) < t.groups.size(); ++t.waited)
    if (const Ticket ticket = t.groups[t.waited].write) land(ticket);
}

}  // namespace assay::simt
