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
          const int64_t col = chunk * chunk_cols, at = begin * p.c_stride + col;
          panel::multiply<T, Y>({.c = p.c + at,
                                 .start = p.start == nullptr ? nullptr : p.start + at,
                                 .c_stride = p.c_stride,
                                 .a = p.row == nullptr ? p.a + begin * p.a_stride : p.a,
                                 .a_stride = p.a_stride,
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

namespace {

// A thread's rows and columns of c.
struct ShareOfC {
  int64_t first_row, rows, col, cols;
};

// How threads share c in accumulate_segments(): a grid of shares. Every thread packs the rows of a
// and the columns of b that it needs, so others pack them too; the grid is the one of least time.
class SharesOfC {
 public:
  SharesOfC(Exec on, int64_t rows, int64_t tile_rows, int64_t cols, int64_t panel_cols)
      : rows_(rows), tile_rows_(tile_rows), cols_(cols), panel_cols_(panel_cols) {
    const int64_t tiles = ceil_div(rows, tile_rows), panels = ceil_div(cols, panel_cols);
    const int64_t threads = std::max<int64_t>(1, on.threads);
    for (int64_t across = 1; across <= std::min(threads, panels); ++across) {
      const int64_t down = std::clamp<int64_t>(threads / across, 1, std::max<int64_t>(1, tiles));
      const int64_t r = ceil_div(tiles, down) * tile_rows,
                    c = ceil_div(panels, across) * panel_cols;
      const int64_t time = r * c / kSumsInTimeOfPacking + r + c;
      if (across > 1 && time >= time_) continue;
      time_ = time;
      down_ = down;
      across_ = across;
    }
  }
  int64_t count() const { return down_ * across_; }
  ShareOfC operator[](int64_t i) const {
    const auto [row, end_row] = part(ceil_div(rows_, tile_rows_), i / across_, down_);
    const auto [panel, end_panel] = part(ceil_div(cols_, panel_cols_), i % across_, across_);
    const int64_t first_row = row * tile_rows_, col = panel * panel_cols_;
    return {.first_row = first_row,
            .rows = std::min(rows_, end_row * tile_rows_) - first_row,
            .col = col,
            .cols = std::min(cols_, end_panel * panel_cols_) - col};
  }
  // Of the largest share.
  int64_t most_rows() const { return ceil_div(ceil_div(rows_, tile_rows_), down_) * tile_rows_; }
  int64_t most_cols() const {
    return ceil_div(ceil_div(cols_, panel_cols_), across_) * panel_cols_;
  }

 private:
  // Sums of a step that the matrix unit adds to while one word of a step is packed.
  static constexpr int64_t kSumsInTimeOfPacking = 64;

  static std::pair<int64_t, int64_t> part(int64_t all, int64_t i, int64_t parts) {
    return {i * all / parts, (i + 1) * all / parts};
  }

  int64_t rows_, tile_rows_, cols_, panel_cols_;
  int64_t down_ = 1, across_ = 1, time_ = 0;
};

template <typename T>
void fill_zeros(const SegmentOuterProduct<T>& p, int64_t e, const ShareOfC& share) {
  float* const c = p.c + (e * p.rows + share.first_row) * p.cols + share.col;
  for (int64_t i = 0; i < share.rows; ++i) std::fill_n(c + i * p.cols, share.cols, 0.0f);
}

// The steps [first, first + steps) of a segment, with the share's columns of b in panels: where
// `padded`, with zeros to a whole tile.
struct PackedSteps {
  int64_t first, steps;
  const uint32_t* panels;
  bool padded;
};

// c[e] += a thread's share of the product of those steps.
template <typename T>
void accumulate_share(const SegmentOuterProduct<T>& p, int64_t e, const ShareOfC& share,
                      const PackedSteps& b) {
  const std::optional<float> scale = factor_of(p.scale);
  const int64_t k = b.first * panel::kStep<T>;
  for_blocks(
      share.first_row, share.first_row + share.rows, panel::tile_rows<T>(),
      panel::outer_rows<T>(share.cols, scale.has_value()), [&](int64_t begin, int64_t rows) {
        panel::accumulate<T>({.c = p.c + (e * p.rows + begin) * p.cols + share.col,
                              .c_stride = p.cols,
                              .store = p.sum == GradientSum::kStore && b.first == 0,
                              .a = p.a + (p.segments.begin(e) + k) * p.a_stride + begin,
                              .a_stride = p.a_stride,
                              .panels = b.panels,
                              .panel_words = panel::kPanelCols<T> * b.steps,
                              .padded = b.padded,
                              .rows = rows,
                              .cols = share.cols,
                              .k = std::min(p.segments.size(e) - k, b.steps * panel::kStep<T>),
                              .scale = scale});
      });
}

// The columns [col, col + cols) of b in the steps [first, first + steps) of segment e.
template <typename T>
panel::PackRows<T> rows_of_b(const SegmentOuterProduct<T>& p, int64_t e, int64_t first,
                             int64_t steps, int64_t col, int64_t cols, uint32_t* panels) {
  const int64_t row = p.segments.begin(e) + first * panel::kStep<T>;
  return {.panels = panels,
          .panel_words = panel::kPanelCols<T> * steps,
          .panel_cols = panel::kPanelCols<T>,
          .x = p.b + (p.row == nullptr ? row * p.cols : 0) + col,
          .stride = p.cols,
          .row = p.row == nullptr ? nullptr : p.row + row,
          .k = p.segments.size(e) - first * panel::kStep<T>,
          .cols = cols};
}

// What a thread packs of b at a time, on its stack and so in its L2 cache; and the bytes of c that
// may stay there while slab after slab is added to them.
constexpr int64_t kOwnWords = 96 << 10, kOwnSteps = 256, kBytesOfC = 1 << 20;

template <typename T>
int64_t own_steps(int64_t cols) {
  constexpr int64_t kChunk = 16;
  return std::min(kOwnSteps, kOwnWords / panel::padded_cols(cols) / kChunk * kChunk);
}

// Steps of the slabs of a segment of `all` steps; the last one may have fewer. On the matrix unit
// they are whole tiles, and equal, so that the last one is not short.
template <typename T>
int64_t slab_steps(int64_t all, int64_t cols) {
  const int64_t most = own_steps<T>(cols), tile = panel::tile_steps<T>();
  return tile == 1 ? most : round_up(ceil_div(all, ceil_div(all, most)), tile);
}

// Every thread packs the columns of b that it needs, a slab just before it is multiplied.
template <typename T>
void accumulate_own(Exec on, const SegmentOuterProduct<T>& p, const SharesOfC& shares) {
  parallel_for(on, shares.count(), [&](int64_t i) {
    const ShareOfC share = shares[i];
    alignas(64) uint32_t packed[kOwnWords];
    for (int64_t e = 0; e < p.segments.count; ++e) {
      const int64_t all = panel::steps<T>(p.segments.size(e));
      if (all == 0) {
        if (p.sum == GradientSum::kStore) fill_zeros(p, e, share);
        continue;
      }
      const int64_t slab = slab_steps<T>(all, share.cols);
      for (int64_t first = 0; first < all; first += slab) {
        const int64_t steps = round_up(std::min(slab, all - first), panel::tile_steps<T>());
        panel::pack_rows<T>(rows_of_b(p, e, first, steps, share.col, share.cols, packed), 0, steps);
        accumulate_share(p, e, share,
                         {.first = first, .steps = steps, .panels = packed, .padded = true});
      }
    }
  });
}

// True if the slabs of accumulate_own() cost nothing: c stays in the cache, or there is one slab.
template <typename T>
bool packs_own(const SegmentOuterProduct<T>& p, const SharesOfC& shares) {
  if (!p.scale.empty()) return false;  // it is applied to the sums of longer slabs
  const int64_t rows = shares.most_rows(), cols = shares.most_cols();
  if (4 * rows * cols <= kBytesOfC) return own_steps<T>(cols) > 0;
  for (int64_t e = 0; e < p.segments.count; ++e) {
    if (panel::steps<T>(p.segments.size(e)) > own_steps<T>(cols)) return false;
  }
  return true;
}

}  // namespace

template <typename T>
void accumulate_segments(Exec on, const SegmentOuterProduct<T>& p) {
  if (p.rows == 0 || p.cols == 0) return;
  const SharesOfC grid(on, p.rows, panel::tile_rows<T>(), p.cols, panel::kPanelCols<T>);
  if (packs_own(p, grid)) return accumulate_own(on, p, grid);
  const Segments& segments = p.segments;
  const int64_t width = panel::padded_cols(p.cols);
  const int64_t all_steps = first_step<T>(segments, segments.count);
  uint32_t* const packed = reinterpret_cast<uint32_t*>(on.workspace.data);
  CHECK(
      4 * width * all_steps <= on.workspace.dim[0] && reinterpret_cast<uintptr_t>(packed) % 64 == 0,
      "matrix product: workspace of %ld bytes at %p, needs %ld, 64-byte aligned",
      long(on.workspace.dim[0]), static_cast<void*>(packed), long(4 * width * all_steps));

  parallel_ranges(on, all_steps, kPackSteps, [&](int64_t begin, int64_t end) {
    for (int64_t e = segment_of_piece(segments, panel::kStep<T>, begin);
         e < segments.count && first_step<T>(segments, e) < end; ++e) {
      const int64_t first = first_step<T>(segments, e), steps = panel::steps<T>(segments.size(e));
      panel::pack_rows<T>(rows_of_b(p, e, 0, steps, 0, p.cols, packed + first * width),
                          std::max<int64_t>(0, begin - first), std::min(steps, end - first));
    }
  });

  // Every thread gets a share of each segment, for any segment sizes.
  const Shares shares(on, p.rows, panel::tile_rows<T>(), ceil_div(p.cols, panel::kPanelCols<T>));
  parallel_for(on, shares.lanes, [&](int64_t lane) {
    const auto [first_row, last_row] = shares.rows_of(lane);
    const auto [first_panel, last_panel] = shares.chunks_of(lane);
    const int64_t col = first_panel * panel::kPanelCols<T>;
    const ShareOfC share{.first_row = first_row,
                         .rows = last_row - first_row,
                         .col = col,
                         .cols = std::min(p.cols, last_panel * panel::kPanelCols<T>) - col};
    for (int64_t e = 0; e < segments.count; ++e) {
      const int64_t steps = panel::steps<T>(segments.size(e));
      const uint32_t* panels = packed + first_step<T>(segments, e) * width + col * steps;
      if (steps > 0) {
        accumulate_share(p, e, share,
                         {.first = 0, .steps = steps, .panels = panels, .padded = false});
      } else if (p.sum == GradientSum::kStore) {
        fill_zeros(p, e, share);
      }
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
