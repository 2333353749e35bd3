#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "ops/cpu_gemm/gemm.h"
#include "ops/cpu_gemm/transpose.h"

namespace assay::panel {

namespace {

// Transposes 16 rows: to[s * width + j] = step s of row j; rows from `rows` on are zero.
template <bool kPast, typename T>
void transpose(uint32_t* to, int64_t width, const T* from, int64_t rows, int64_t k) {
  const int64_t whole = k / kStep<T>;
  int64_t done = 0;
#if defined(__AVX512F__)
  // Whole blocks are transposed in place; the last steps of a row, or all of a short one, through a
  // padded block.
  for (; rows == kVector && done < whole; done = std::min(done + 16, whole)) {
    const int64_t count = std::min<int64_t>(16, whole - done);
    const auto* block = reinterpret_cast<const std::byte*>(from) + 4 * done;
    int64_t stride = k * int64_t(sizeof(T)), across_width = width;
    uint32_t* across = to + done * width;
    alignas(64) uint32_t part[16 * 16], part_across[16 * 16];
    if (count < 16) {
      std::fill_n(part, 16 * 16, 0u);
      for (int64_t j = 0; j < 16; ++j) {
        std::memcpy(part + 16 * j, block + j * stride, size_t(4 * count));
      }
      block = reinterpret_cast<const std::byte*>(part);
      across = part_across;
      stride = 64;
      across_width = 16;
    }
    if (count < 16) {
      transpose_16(across, across_width, block, stride);
    } else {
      transpose_16<kPast>(across, across_width, block, stride);
    }
    for (int64_t s = 0; count < 16 && s < count; ++s) {
      std::memcpy(to + (done + s) * width, across + 16 * s, 64);
    }
  }
#endif
  for (int64_t s = done; s < steps<T>(k); ++s) {
    uint32_t* words = to + s * width;
    for (int64_t j = 0; j < kVector; ++j) words[j] = 0;
    if (s < whole) {
      for (int64_t j = 0; j < rows; ++j) std::memcpy(&words[j], from + j * k + s * kStep<T>, 4);
    } else {
      for (int64_t j = 0; j < rows; ++j) {
        std::memcpy(&words[j], from + j * k + s * kStep<T>, sizeof(T));
      }
    }
  }
}

// Other threads see the stores past the caches before any later one.
void finish_stores() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

// One step: to[j] = (low[j], high[j]), zero from cols up to padded_cols(cols). high may be null:
// zeros.
template <bool kPast>
void interleave(uint32_t* __restrict to, const bf16* __restrict low, const bf16* __restrict high,
                int64_t cols) {
#if defined(__AVX512BW__)
  // 32 columns: interleaves word j of low and high.
  static constexpr auto kPairs = [] {
    std::array<std::array<uint16_t, 32>, 2> index{};
    for (size_t j = 0; j < 64; ++j) index[j / 32][j % 32] = uint16_t(j / 2 + (j % 2) * 32);
    return index;
  }();
  const __m512i first = _mm512_loadu_si512(kPairs[0].data());
  const __m512i second = _mm512_loadu_si512(kPairs[1].data());
  for (int64_t j = 0; j < cols; j += 32) {
    const int64_t left = cols - j;
    const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    const __m512i l = _mm512_maskz_loadu_epi16(mask, low + j);
    const __m512i h =
        high == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, high + j);
    store_line<kPast>(to + j, _mm512_permutex2var_epi16(l, first, h));
    if (left > 16) store_line<kPast>(to + j + 16, _mm512_permutex2var_epi16(l, second, h));
  }
#else
  if (high != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) {
      to[j] = uint32_t{low[j].bits} | uint32_t{high[j].bits} << 16;
    }
  } else {
    for (int64_t j = 0; j < cols; ++j) to[j] = low[j].bits;
  }
  for (int64_t j = cols; j < padded_cols(cols); ++j) to[j] = 0;
#endif
}

// Steps that pack_rows() takes together: they stay in the L1 cache until the last panel.
constexpr int64_t kTogether = 8;

// Asks for columns of a row that is packed kTogether steps later: the hardware foresees neither
// pieces of rows nor rows in any order.
template <typename T>
void prefetch_later(const PackRows<T>& p, int64_t k, int64_t col, int64_t cols) {
  k += kTogether * kStep<T>;
  if (k >= p.k) return;
  const T* row = p.x + (p.row == nullptr ? k : p.row[k]) * p.stride + col;
  for (int64_t c = 0; c < cols; c += 64 / int64_t{sizeof(T)}) __builtin_prefetch(row + c, 0, 2);
}

// pack_rows(), panel after panel.
template <bool kPast, typename T>
void pack_steps(const PackRows<T>& p, int64_t begin, int64_t end) {
  uint32_t* panel = p.panels;
  for (int64_t col = 0; col < p.cols; col += p.panel_cols, panel += p.panel_words) {
    const int64_t cols = std::min(p.panel_cols, p.cols - col), width = padded_cols(cols);
    const int64_t filled = std::clamp(steps<T>(p.k), begin, end);
    for (int64_t s = begin; s < filled; ++s) {
      const T* from[2] = {nullptr, nullptr};
      for (int64_t h = 0; h < kStep<T>; ++h) {
        const int64_t k = s * kStep<T> + h;
        if (k < p.k) from[h] = p.x + (p.row == nullptr ? k : p.row[k]) * p.stride + col;
        prefetch_later(p, k, col, cols);
      }
      uint32_t* to = panel + s * width;
      if constexpr (kStep<T> == 1) {
        if (cols == kWidePanel) {  // a copy of constant length
          std::memcpy(to, from[0], size_t{kWidePanel} * 4);
          continue;
        }
        std::memcpy(to, from[0], static_cast<size_t>(cols) * 4);
        std::fill(to + cols, to + width, 0u);
      } else {
        interleave<kPast>(to, from[0], from[1], cols);
      }
    }
    if (filled < end) std::fill(panel + filled * width, panel + end * width, 0u);
  }
}

}  // namespace

template <typename T>
void pack_transposed(const PackTransposed<T>& p, int64_t first, int64_t last) {
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t begin = panel * kPanelCols<T>, cols = std::min(kPanelCols<T>, p.cols - begin);
    const int64_t width = padded_cols(cols);
    uint32_t* to = p.panels + begin * steps<T>(p.k);
    for (int64_t j = 0; j < cols; j += kVector) {
      const T* w = p.w + (begin + j) * p.k;
      const int64_t rows = std::min(kVector, cols - j);
      if (p.past_caches) {
        transpose<true>(to + j, width, w, rows, p.k);
      } else {
        transpose<false>(to + j, width, w, rows, p.k);
      }
    }
  }
  if (p.past_caches) finish_stores();
}

template <typename T>
void pack_rows(const PackRows<T>& p, int64_t begin, int64_t end) {
  for (int64_t first = begin; first < end; first += kTogether) {
    const int64_t last = std::min(end, first + kTogether);
    if (p.past_caches) {
      pack_steps<true>(p, first, last);
    } else {
      pack_steps<false>(p, first, last);
    }
  }
  if (p.past_caches) finish_stores();
}

template void pack_transposed<float>(const PackTransposed<float>&, int64_t, int64_t);
template void pack_transposed<bf16>(const PackTransposed<bf16>&, int64_t, int64_t);
template void pack_rows<float>(const PackRows<float>&, int64_t, int64_t);
template void pack_rows<bf16>(const PackRows<bf16>&, int64_t, int64_t);

}  // namespace assay::panel
