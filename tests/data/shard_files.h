// Small files for the tests of data/.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "data/shard.h"

namespace assay {

// Writes a shard and returns its hash.
inline std::string write_shard(const std::string& path, const std::vector<int32_t>& tokens,
                               int64_t vocab_size) {
  ShardWriter writer(path, vocab_size);
  writer.append({tokens.data(), {static_cast<int64_t>(tokens.size())}});
  return writer.commit();
}

// All tokens of a shard.
inline std::vector<int32_t> read_tokens(const std::string& path, int64_t vocab_size) {
  std::vector<int32_t> all;
  for_each_piece(Shard(path), vocab_size, [&](int64_t, View<const int32_t, 1> piece) {
    all.insert(all.end(), piece.data, piece.data + piece.size());
  });
  return all;
}

// first, first + 1, ... modulo vocab_size.
inline std::vector<int32_t> counting(int64_t first, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>((first + i) % vocab_size));
  return tokens;
}

// Without the fsync of write_file_atomic, for loops over thousands of files.
inline void write_file_plain(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

}  // namespace assay
