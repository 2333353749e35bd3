#include "ops/segment_product.h"

#include <algorithm>
#include <utility>

#include "base/bf16.h"
#include "base/check.h"
#include "ops/panel.h"

namespace assay {

namespace {

constexpr int64_t kChunkBytes = 256
                                << 10;  // panels of one piece: they stay in the second-level cache
constexpr int64_t kEnoughPieces = 8;    // of a gradient, so that threads finish together
constexpr int64_t kPackSteps = 64;      // steps one piece of accumulate_segments packs

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Pieces of `grain` rows that never cross a segment, numbered without a table: segment e has the numbers from
// offsets[e] / grain + e on. Some numbers at its end may be unused.
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

// Packed steps of a segment: as many as its rows need, so that each starts with a whole step.
template <typename T>
int64_t first_step(const Segments& s, int64_t e) {
  return first_piece(s, panel::kStep<T>, e);
}

}  // namespace

template <typename T, typename Y>
void multiply_segments(Exec on, const SegmentProduct<T, Y>& p) {
  const Segments& segments = p.segments;
  const int64_t pass_steps = std::min(panel::steps<T>(p.k), panel::kBlockSteps);
  const int64_t panel_bytes = 4 * panel::kPanelCols * std::max<int64_t>(1, pass_steps);
  const int64_t chunk_cols = panel::kPanelCols * std::max<int64_t>(1, kChunkBytes / panel_bytes);
  const int64_t chunks = ceil_div(p.cols, chunk_cols);
  // A thread gets neighbouring rows, as in the ops before and after, so that they are in its cache, and goes through all
  // of them with one chunk of panels before the next. With fewer blocks of rows than threads it gets neighbouring
  // chunks instead. An element has the same bits whoever computes it.
  const int64_t blocks = first_piece(segments, panel::kBlockRows, segments.count);
  const bool by_rows = blocks >= on.threads;
  const int64_t lanes = std::clamp<int64_t>(on.threads, 1, by_rows ? blocks : chunks);
  parallel_for(on, lanes, [&](int64_t lane) {
    const auto part = [&](int64_t n) {
      return std::pair(lane * n / lanes, (lane + 1) * n / lanes);
    };
    const auto [first_block, last_block] = by_rows ? part(blocks) : std::pair(int64_t{0}, blocks);
    const auto [first_chunk, last_chunk] = by_rows ? std::pair(int64_t{0}, chunks) : part(chunks);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
      for (int64_t block = first_block; block < last_block; ++block) {
        const int64_t e = segment_of_piece(segments, panel::kBlockRows, block);
        const int64_t row_block = block - first_piece(segments, panel::kBlockRows, e);
        if (row_block * panel::kBlockRows >= segments.size(e)) continue;
        const int64_t begin = segments.begin(e) + row_block * panel::kBlockRows;
        const int64_t col = chunk * chunk_cols, at = begin * p.cols + col;
        panel::multiply<T, Y>({.c = p.c + at,
                               .start = p.start == nullptr ? nullptr : p.start + at,
                               .c_stride = p.cols,
                               .a = p.row == nullptr ? p.a + begin * p.k : p.a,
                               .row = p.row == nullptr ? nullptr : p.row + begin,
                               .panels = reinterpret_cast<const uint32_t*>(p.b + e * p.b_bytes) +
                                         col * panel::steps<T>(p.k),
                               .rows = std::min(panel::kBlockRows, segments.end(e) - begin),
                               .cols = std::min(chunk_cols, p.cols - col),
                               .k = p.k});
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
                           .panel_words = panel::kPanelCols * steps,
                           .panel_cols = panel::kPanelCols,
                           .x = p.row == nullptr ? p.b + segments.begin(e) * p.cols : p.b,
                           .stride = p.cols,
                           .row = p.row == nullptr ? nullptr : p.row + segments.begin(e),
                           .k = segments.size(e),
                           .cols = p.cols},
                          std::max<int64_t>(0, begin - first), std::min(steps, end - first));
    }
  });

  // Blocks of whole tiles of c's rows, as high as leaves enough of them for a few threads; packing a block's
  // stripe of `a` again for each chunk of columns costs 2% of the chunk.
  const int64_t tiles = ceil_div(p.rows, panel::kTileRows);
  const int64_t high = ceil_div(p.rows, panel::kBlockRows);
  const int64_t blocks =
      segments.count * high >= kEnoughPieces ? high : ceil_div(p.rows, panel::kBlockRows / 2);
  const int64_t chunk_cols =
      segments.count * blocks >= kEnoughPieces ? p.cols : 4 * panel::kPanelCols;
  const int64_t chunks = ceil_div(p.cols, chunk_cols);
  parallel_for(on, segments.count * blocks * chunks, [&](int64_t piece) {
    const int64_t e = piece / (blocks * chunks), block = piece / chunks % blocks;
    const int64_t begin = block * tiles / blocks * panel::kTileRows;
    const int64_t end = std::min(p.rows, (block + 1) * tiles / blocks * panel::kTileRows);
    const int64_t col = piece % chunks * chunk_cols;
    const int64_t size = segments.size(e), panel_words = panel::kPanelCols * panel::steps<T>(size);
    if (size == 0) return;
    panel::accumulate<T>({.c = p.c + (e * p.rows + begin) * p.cols + col,
                          .c_stride = p.cols,
                          .a = p.a + segments.begin(e) * p.rows + begin,
                          .a_stride = p.rows,
                          .panels = packed + first_step<T>(segments, e) * width +
                                    col / panel::kPanelCols * panel_words,
                          .panel_words = panel_words,
                          .rows = end - begin,
                          .cols = std::min(chunk_cols, p.cols - col),
                          .k = size});
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
