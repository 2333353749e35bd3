// A list of shards, cut into blocks of equal length that may be read in any order. Block b of a
// shard is its tokens [b * block_tokens, (b + 1) * block_tokens) and one token of look-ahead. A
// shard has floor((tokens - 1) / block_tokens) blocks; its tail is dropped. After the last block
// the first one follows again, in the next epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "data/shard.h"

namespace assay {

// Position of a block. (A mixture uses `batch` for the step; the rest is 0.)
struct Cursor {
  int64_t shard = 0;
  int64_t batch = 0;  // block within the shard
  int64_t epoch = 0;
  bool operator==(const Cursor&) const = default;
};

class ShardBlocks {
 public:
  // hashed: what the files must have, as far as it names them. UserError when a file is not a
  // shard. blocks() is 0 if all shards are too short.
  ShardBlocks(const std::vector<std::string>& files, int64_t block_tokens,
              const HashedFiles& hashed = {});

  const std::vector<Shard>& shards() const { return shards_; }
  int64_t blocks() const { return first_block_.back(); }  // per epoch
  int64_t blocks_of(int64_t shard) const;
  int64_t longest_tokens() const;  // of the longest shard
  int64_t token_bytes() const;     // 4 if any shard has 4-byte tokens, else 2

  Cursor cursor_of(int64_t block) const;  // block: counted over all epochs
  int64_t block_of(const Cursor& cursor) const;

  // Reads tokens [from, from + out.size()) of the block and its look-ahead. raw: scratch, as in
  // Shard::read().
  void read(const Cursor& cursor, int64_t from, IdLimit limit, View<int32_t, 1> out,
            View<std::byte, 1> raw) const;

 private:
  std::vector<Shard> shards_;
  std::vector<int64_t> first_block_;  // (shards + 1) blocks before each shard; last: all blocks
  int64_t block_tokens_;
};

}  // namespace assay
