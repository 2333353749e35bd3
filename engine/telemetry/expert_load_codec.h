// The encoding of a layer's load vector in telemetry.db. Counts of one step differ mostly in their
// low bytes, so the bytes are grouped into planes before compression: all lowest bytes, then all
// second ones, ...
//
//   blob        'P', then zstd of the byte planes (4, E) of uint32[E]
//   version 1   zstd of uint32[E], little-endian
//
// The first byte distinguishes them: a zstd frame begins with 0x28.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/view.h"

struct ZSTD_CCtx_s;

namespace assay {

// Packs vectors of one length; allocates nothing after construction.
class LoadPacker {
 public:
  explicit LoadPacker(int64_t experts);
  std::string_view pack(View<const uint32_t, 1> counts);  // valid until the next call

 private:
  std::unique_ptr<ZSTD_CCtx_s, size_t (*)(ZSTD_CCtx_s*)> zstd_;
  std::vector<uint8_t> planes_;
  std::vector<char> packed_;
};

// Returns false if the blob is not a load vector.
bool unpack_load(std::string_view blob, std::vector<uint32_t>& counts);

}  // namespace assay
