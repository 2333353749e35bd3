#include "ops/cpu_gemm/ragged.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "ops/cpu_gemm/gemm.h"

namespace assay {

namespace {

constexpr int64_t kEnoughRows = 48;  // with so many rows per thread they split rows, else columns
constexpr int64_t kPackSteps = 64;   // steps that one piece of accumulate_segments packs

// Pieces of `grain` rows that never cross a segment, numbered without a table: the numbers of
// segment e start at offsets[e] / grain + e. Some numbers at its end may be unused.
int64_t first_piece(const Segments& s, int64_t grain, int64_t e) {
  return s.begin(e) / grain + e;
}
int64_t segment_of_piece(const Segments& s, int64_t grain, int64_t piece) {
  int64_t low = 0, high = s.count;  // first_piece(low) <= piece < first_piece(high)
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (first_piece(s, grain, middle) <= piece ? low : high) = middle;
  }
  return low;
}

int64_t segment_of_row(const Segments& s, int64_t row) {
  return std::upper_bound(s.offsets, s.offsets + s.count + 1, row) - s.offsets - 1;
}

// First packed step of a segment: each segment has as many steps as its rows need, so that it
// starts with a whole step.
template <typename T>
int64_t first_step(const Segments& s, int64_t e) {
  return first_piece(s, panel::kStep<T>, e);
}

std::optional<float> factor_of(const ProductScale& s) {
  return s.empty() ? std::nullopt : std::optional(s.factor());
}

// Calls f(from, count) for the blocks of rows [begin, end): whole tiles, of nearly equal height.
template <typename F>
void for_blocks(int64_t begin, int64_t end, int64_t tile_rows, int64_t block_rows, F&& f) {
  const int64_t tiles = ceil_div(end - begin, tile_rows);
  const int64_t blocks = ceil_div(end - begin, block_rows);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t from = begin + i * tiles / blocks * tile_rows;
    f(from, std::min(end, begin + (i + 1) * tiles / blocks * tile_rows) - from);
  }
}

// How threads share a product: each gets adjacent tiles of rows and all chunks of columns or, with
// few rows, the reverse. An element has the same bits on any thread, so the shares need not be
// whole blocks.
struct Shares {
  int64_t rows, tile_rows, tiles, chunks, lanes;
  bool by_rows;

  Shares(Exec on, int64_t num_rows, int64_t rows_of_tile, int64_t num_chunks)
      : rows(num_rows),
        tile_rows(rows_of_tile),
        tiles(ceil_div(num_rows, rows_of_tile)),
        chunks(num_chunks) {
    by_rows = rows >= kEnoughRows * on.threads || chunks < on.threads;
    lanes = std::clamp<int64_t>(on.threads, 1, std::max<int64_t>(1, by_rows ? tiles : chunks));
  }
  std::pair<int64_t, int64_t> rows_of(int64_t lane) const {
    if (!by_rows) return {0, rows};
    return {lane * tiles / lanes * tile_rows,
            std::min(rows, (lane + 1) * tiles / lanes * tile_rows)};
  }
  std::pair<int64_t, int64_t> chunks_of(int64_t lane) const {
    if (by_rows) return {0, chunks};
    return {lane * chunks / lanes, (lane + 1) * chunks / lanes};
  }
};

}  // namespace

template <typename T, typename Y>
void multiply_segments(Exec on, const SegmentProduct<T, Y>& p) {
  const Segments& segments = p.segments;
  const std::optional<float> scale = factor_of(p.scale);
  const int64_t pass_steps = std::min(panel::steps<T>(p.k), panel::kBlockSteps);
  const int64_t panel_bytes = 4 * panel::kPanelCols<T> * std::max<int64_t>(1, pass_steps);
  int64_t chunk_cols =
      panel::kPanelCols<T> * std::max<int64_t>(1, panel::chunk_bytes<T>() / panel_bytes);
  const int64_t all_rows = segments.end(segments.count - 1);
  if (all_rows < kEnoughRows * on.threads) {  // a share of the columns for each thread
    const int64_t share = ceil_div<int64_t>(p.cols, on.threads);
    chunk_cols =
        std::clamp(round_up(share, panel::kPanelCols<T>), panel::kPanelCols<T>, chunk_cols);
  }
  const int64_t chunks = ceil_div(p.cols, chunk_cols);
  // A thread gets the same adjacent rows as in the ops before and after, so they are in its cache;
  // it processes all of them with one chunk of panels before the next.
  const int64_t tile_rows = panel::tile_rows<T>();
  const Shares shares(on, all_rows, tile_rows, chunks);
  parallel_for(on, shares.lanes, [&](int64_t lane) {
    const auto [first_row, last_row] = shares.rows_of(lane);
    const auto [first_chunk, last_chunk] = shares.chunks_of(lane);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
      for (int64_t e = segment_of_row(segments, first_row);
           e < segments.count && segments.begin(e) < last_row; ++e) {
        const auto multiply_block = [&](int64_t begin, int64_t rows) {
          const int64_t col = chunk * chunk_cols, at = begin * p.cols + col;
          panel::multiply<T, Y>({.c = p.c + at,
                                 .start = p.start == nullptr ? nullptr : p.start + at,
                                 .c_stride = p.cols,
                                 .a = p.row == nullptr ? p.a + begin * p.k : p.a,
                                 .row = p.row == nullptr ? nullptr : p.row + begin,
                                 .panels = reinterpret_cast<const uint32_t*>(p.b + e * p.b_bytes) +
                                           col * panel::steps<T>(p.k),
                                 .rows = rows,
                                 .cols = std::min(chunk_cols, p.cols - col),
                                 .k = p.k,
                                 .scale = scale});
        };
        const int64_t begin = std::max(first_row, segments.begin(e));
        const int64_t end = std::min(last_row, segments.end(e));
        for_blocks(
            begin, end, tile_rows,
            panel::block_rows<T>(end - begin, std::min(chunk_cols, p.cols), p.k, p.row != nullptr),
            multiply_block);
      }
    }
  });
}

template <typename T>
int64_t accumulate_workspace_bytes(int64_t rows, int64_t segments, int64_t cols) {
  return 4 * panel::padded_cols(cols) * (rows / panel::kStep<T> + segments);
}

template <typename T>
void accumulate_segments(Exec on, const SegmentOuterProduct<T>& p) {
  const Segments& segments = p.segments;
  const std::optional<float> scale = factor_of(p.scale);
  const int64_t width = panel::padded_cols(p.cols);
  const int64_t all_steps = first_step<T>(segments, segments.count);
  uint32_t* packed = reinterpret_cast<uint32_t*>(on.workspace.data);
  CHECK(
      4 * width * all_steps <= on.workspace.dim[0] && reinterpret_cast<uintptr_t>(packed) % 64 == 0,
      "matrix product: workspace of %ld bytes at %p, needs %ld, 64-byte aligned",
      long(on.workspace.dim[0]), static_cast<void*>(packed), long(4 * width * all_steps));

  parallel_ranges(on, all_steps, kPackSteps, [&](int64_t begin, int64_t end) {
    for (int64_t e = segment_of_piece(segments, panel::kStep<T>, begin);
         e < segments.count && first_step<T>(segments, e) < end; ++e) {
      const int64_t first = first_step<T>(segments, e), steps = panel::steps<T>(segments.size(e));
      panel::pack_rows<T>({.panels = packed + first * width,
                           .panel_words = panel::kPanelCols<T> * steps,
                           .panel_cols = panel::kPanelCols<T>,
                           .x = p.row == nullptr ? p.b + segments.begin(e) * p.cols : p.b,
                           .stride = p.cols,
                           .row = p.row == nullptr ? nullptr : p.row + segments.begin(e),
                           .k = segments.size(e),
                           .cols = p.cols},
                          std::max<int64_t>(0, begin - first), std::min(steps, end - first));
    }
  });

  // Every thread gets a share of each segment, for any segment sizes.
  const int64_t tile_rows = panel::tile_rows<T>();
  const Shares shares(on, p.rows, tile_rows, ceil_div(p.cols, panel::kPanelCols<T>));
  parallel_for(on, shares.lanes, [&](int64_t lane) {
    const auto [first_row, last_row] = shares.rows_of(lane);
    const auto [first_panel, last_panel] = shares.chunks_of(lane);
    const int64_t col = first_panel * panel::kPanelCols<T>;
    const int64_t cols = std::min(p.cols, last_panel * panel::kPanelCols<T>) - col;
    const int64_t block_rows = panel::outer_rows<T>(cols, scale.has_value());
    for (int64_t e = 0; e < segments.count; ++e) {
      const int64_t size = segments.size(e);
      const bool stores = p.sum == GradientSum::kStore;
      float* const c = p.c + e * p.rows * p.cols + col;
      if (size == 0) {
        for (int64_t i = first_row; stores && i < last_row; ++i) {
          std::fill_n(c + i * p.cols, cols, 0.0f);
        }
        continue;
      }
      const int64_t panel_words = panel::kPanelCols<T> * panel::steps<T>(size);
      const uint32_t* const panels =
          packed + first_step<T>(segments, e) * width + first_panel * panel_words;
      for_blocks(first_row, last_row, tile_rows, block_rows, [&](int64_t begin, int64_t rows) {
        panel::accumulate<T>({.c = c + begin * p.cols,
                              .c_stride = p.cols,
                              .store = stores,
                              .a = p.a + segments.begin(e) * p.rows + begin,
                              .a_stride = p.rows,
                              .panels = panels,
                              .panel_words = panel_words,
                              .rows = rows,
                              .cols = cols,
                              .k = size,
                              .scale = scale});
      });
    }
  });
}

template void multiply_segments<float, float>(Exec, const SegmentProduct<float, float>&);
template void multiply_segments<bf16, bf16>(Exec, const SegmentProduct<bf16, bf16>&);
template void multiply_segments<bf16, float>(Exec, const SegmentProduct<bf16, float>&);
template void accumulate_segments<float>(Exec, const SegmentOuterProduct<float>&);
template void accumulate_segments<bf16>(Exec, const SegmentOuterProduct<bf16>&);
template int64_t accumulate_workspace_bytes<float>(int64_t, int64_t, int64_t);
template int64_t accumulate_workspace_bytes<bf16>(int64_t, int64_t, int64_t);

}  // namespace assay
