#include "data/shard_blocks.h"

#include <algorithm>

#include "base/check.h"

namespace assay {

ShardBlocks::ShardBlocks(const std::vector<std::string>& files, int64_t block_tokens,
                         const HashedFiles& hashed)
    : first_block_{0}, block_tokens_(block_tokens) {
  for (const std::string& file : files) {
    const int64_t tokens = shards_.emplace_back(file).tokens();
    if (const auto found = hashed.find(file); found != hashed.end())
      shards_.back().expect(found->second);
    first_block_.push_back(first_block_.back() + std::max<int64_t>(0, tokens - 1) / block_tokens);
  }
}

int64_t ShardBlocks::blocks_of(int64_t shard) const {
  const size_t s = static_cast<size_t>(shard);
  return first_block_[s + 1] - first_block_[s];
}

int64_t ShardBlocks::longest_tokens() const {
  int64_t longest = 0;
  for (const Shard& shard : shards_) longest = std::max(longest, shard.tokens());
  return longest;
}

int64_t ShardBlocks::token_bytes() const {
  int64_t widest = 2;
  for (const Shard& shard : shards_) widest = std::max<int64_t>(widest, shard.token_bytes());
  return widest;
}

Cursor ShardBlocks::cursor_of(int64_t block) const {
  CHECK(block >= 0 && blocks() > 0, "block %ld of %ld per epoch", static_cast<long>(block),
        static_cast<long>(blocks()));
  const int64_t in_epoch = block % blocks();
  const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), in_epoch);
  const int64_t shard = after - first_block_.begin() - 1;
  return {.shard = shard,
          .batch = in_epoch - first_block_[static_cast<size_t>(shard)],
          .epoch = block / blocks()};
}

int64_t ShardBlocks::block_of(const Cursor& cursor) const {
  return cursor.epoch * blocks() + first_block_[static_cast<size_t>(cursor.shard)] + cursor.batch;
}

void ShardBlocks::read(const Cursor& cursor, int64_t from, IdLimit limit, View<int32_t, 1> out,
                       View<std::byte, 1> raw) const {
  shards_[static_cast<size_t>(cursor.shard)].read(cursor.batch * block_tokens_ + from, limit, out,
                                                  raw);
}

}  // namespace assay
