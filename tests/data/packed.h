// Texts compressed by gzip and zstd, for the tests of the decompression.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>

#include "tests/catch.h"

namespace assay {

inline std::string gzip(const std::string& text) {
  constexpr int kGzipHeader = 16;
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzipHeader, 8, Z_DEFAULT_STRATEGY) ==
          Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// With a checksum, as the command line tool writes it.
inline std::string zstd(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return packed;
}

}  // namespace assay
