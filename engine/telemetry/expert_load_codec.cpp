#include "engine/telemetry/expert_load_codec.h"

#include <zstd.h>

#include "base/check.h"

namespace assay {
namespace {

constexpr char kPlanes = 'P';
constexpr size_t kBytes = sizeof(uint32_t);
constexpr unsigned long long kLargest = uint64_t{65536} * kBytes;
constexpr int kLevel = 1;

}  // namespace

LoadPacker::LoadPacker(int64_t experts)
    : zstd_(ZSTD_createCCtx(), ZSTD_freeCCtx),
      planes_(size_t(experts) * kBytes),
      packed_(1 + ZSTD_compressBound(size_t(experts) * kBytes)) {
  packed_[0] = kPlanes;
}

std::string_view LoadPacker::pack(View<const uint32_t, 1> counts) {
  const size_t experts = size_t(counts.dim[0]);
  CHECK(experts * kBytes == planes_.size(), "%zu counts, planned for %zu", experts,
        planes_.size() / kBytes);
  for (size_t plane = 0; plane < kBytes; ++plane) {
    uint8_t* to = planes_.data() + plane * experts;
    for (size_t e = 0; e < experts; ++e) to[e] = uint8_t(counts.data[e] >> (8 * plane));
  }
  const size_t bytes = ZSTD_compressCCtx(zstd_.get(), packed_.data() + 1, packed_.size() - 1,
                                         planes_.data(), planes_.size(), kLevel);
  CHECK(!ZSTD_isError(bytes), "zstd of %zu counts: %s", experts, ZSTD_getErrorName(bytes));
  return {packed_.data(), 1 + bytes};
}

bool unpack_load(std::string_view blob, std::vector<uint32_t>& counts) {
  const bool planes = !blob.empty() && blob.front() == kPlanes;
  if (planes) blob.remove_prefix(1);
  const unsigned long long bytes = ZSTD_getFrameContentSize(blob.data(), blob.size());
  if (bytes > kLargest || bytes % kBytes != 0)
    return false;  // includes zstd's error values for a damaged frame
  counts.resize(bytes / kBytes);
  if (!planes) return ZSTD_decompress(counts.data(), bytes, blob.data(), blob.size()) == bytes;
  std::vector<uint8_t> unpacked(bytes);
  if (ZSTD_decompress(unpacked.data(), bytes, blob.data(), blob.size()) != bytes) return false;
  const size_t experts = counts.size();
  for (size_t e = 0; e < experts; ++e) {
    counts[e] = 0;
    for (size_t plane = 0; plane < kBytes; ++plane) {
      counts[e] |= uint32_t(unpacked[plane * experts + e]) << (8 * plane);
    }
  }
  return true;
}

}  // namespace assay
