// Shards one after the other, cut into blocks of equal length that may be read in any order. Block
// b of a shard is its tokens [b * block_tokens, (b + 1) * block_tokens) and one token of
// look-ahead: floor((tokens - 1) / block_tokens) blocks a shard, the tail is dropped. After the
// last block comes the first again, in the next epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "data/shard.h"

namespace assay {

// Where a block stands.
struct Cursor {
  int64_t shard = 0;
  int64_t batch = 0;  // block of the shard
  int64_t epoch = 0;
  bool operator==(const Cursor&) const = default;
};

class ShardBlocks {
 public:
  // UserError when a file is no shard. There may be no block in them.
  ShardBlocks(const std::vector<std::string>& files, int64_t block_tokens);

  const std::vector<Shard>& shards() const { return shards_; }
  int64_t blocks() const { return first_block_.back(); }  // of an epoch
  int64_t blocks_of(int64_t shard) const;
  int64_t longest_tokens() const;  // of the longest shard
  int64_t token_bytes() const;     // of the widest tokens

  Cursor cursor_of(int64_t block) const;  // the block-th over all epochs
  int64_t block_of(const Cursor& cursor) const;

  // Tokens [from, from + out.size()) of the block and what follows it in its shard, at most to the
  // look-ahead.
  void read(const Cursor& cursor, int64_t from, int64_t vocab_size, View<int32_t, 1> out,
            View<std::byte, 1> raw) const;

 private:
  std::vector<Shard> shards_;
  std::vector<int64_t> first_block_;  // (shards + 1) blocks before each shard, then all
  int64_t block_tokens_;
};

}  // namespace assay
