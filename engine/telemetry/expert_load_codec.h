// The load vector of a layer as telemetry.db stores it. Counts of one step differ in their low
// bytes and hardly in their high ones, so the bytes are sorted by their place before zstd sees
// them: all lowest bytes, then all second ones, ...
//
//   blob = 'P' and zstd of the byte planes (4, E) of uint32[E]         version 1: zstd of uint32[E], little-endian
//
// The first byte tells them apart: a zstd frame begins with 0x28.
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
  std::string_view pack(View<const uint32_t, 1> counts);  // until the next call

 private:
  std::unique_ptr<ZSTD_CCtx_s, size_t (*)(ZSTD_CCtx_s*)> zstd_;
  std::vector<uint8_t> planes_;
  std::vector<char> packed_;
};

// False when the blob is no load vector.
bool unpack_load(std::string_view blob, std::vector<uint32_t>& counts);

}  // namespace assay
