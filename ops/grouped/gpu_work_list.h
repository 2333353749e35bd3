// The work list of the grouped GEMMs on the GPU, built there from the experts' offsets: nothing is
// read back.
//
//   forward, dgrad   each expert's rows, cut into pieces of tile_rows, expert by expert
//   wgrad            whole experts, in descending order of rows, without empty ones; an expert with
//                    more than kGroupedPieceRows rows is cut into equal pieces, whose sums are
//                    added afterwards: else it could take longer than all others together
#pragma once

#include "base/math.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/weight_matrix.h"

namespace assay::gpu {

struct alignas(16) GroupedPart {
  int32_t expert;
  int32_t begin;  // first assignment
  int32_t rows;
  int32_t slot;  // wgrad: slot of the piece's sums in `partial`, from 1; 0: a whole expert
};

// Parts of Exec::workspace, laid out by grouped_parts().
struct GroupedParts {
  int32_t* count;      // out (1)      number of parts
  int32_t* first;      // tmp (E)      index of an expert's first part
  GroupedPart* parts;  // out (grouped_parts_limit)
  float* partial;      // tmp (grouped_slots, out, in)   for wgrad
};

constexpr int64_t kGroupedSmallestTile = 64;  // rows
constexpr int kGroupedPieceShift = 14;
constexpr int kGroupedPieceRows = 1 << kGroupedPieceShift;
enum class GroupedCut { kWhole, kPieces };  // whether larger experts are cut

// An expert of r rows that is cut has ceil(r / kGroupedPieceRows) pieces, less than twice r /
// kGroupedPieceRows. most_rows: no expert has more.
constexpr int64_t grouped_slots(int64_t assignments, int64_t most_rows = INT64_MAX) {
  return most_rows <= kGroupedPieceRows ? 0 : 2 * (assignments / kGroupedPieceRows);
}

constexpr int64_t grouped_parts_limit(int64_t assignments, int64_t experts, int64_t tile_rows) {
  return assignments / tile_rows + experts;
}
constexpr int64_t grouped_first_bytes(int64_t experts) {
  return round_up(experts * int64_t{sizeof(int32_t)}, 64);
}
constexpr int64_t grouped_list_bytes(int64_t assignments, int64_t experts) {
  return 64 + grouped_first_bytes(experts) +
         round_up(grouped_parts_limit(assignments, experts, kGroupedSmallestTile) *
                      int64_t{sizeof(GroupedPart)},
                  64);
}
constexpr int64_t grouped_parts_bytes(int64_t assignments, int64_t experts, int64_t out, int64_t in,
                                      int64_t most_rows = INT64_MAX) {
  return grouped_list_bytes(assignments, experts) +
         grouped_slots(assignments, most_rows) * out * in * int64_t{sizeof(float)};
}

// Lays out the list in on.workspace; `op` names the op if the workspace is too small. Only wgrad
// has sums of out x in.
GroupedParts grouped_parts(Exec on, const char* op, int64_t assignments, int64_t experts,
                           int64_t out = 0, int64_t in = 0, int64_t most_rows = INT64_MAX);

// Writes the list of forward and dgrad (cut_rows) or of wgrad (order_experts) from offsets (E+1).
// For cut_rows they may be empty: one expert has all the rows.
void cut_rows(Exec on, const GroupedParts& to, View<const int32_t, 1> offsets, int64_t rows,
              int tile_rows);
void order_experts(Exec on, const GroupedParts& to, View<const int32_t, 1> offsets, GroupedCut cut);
// dweight (E, out, in) of each expert that was cut += the sums of its pieces, in order; with kStore
// dweight = these sums.
void add_pieces(Exec on, const GroupedParts& from, View<float, 3> dweight, GradientSum sum);
// dweight (E, out, in) of each expert without rows = 0.
void zero_idle_experts(Exec on, View<const int32_t, 1> offsets, View<float, 3> dweight);

}  // namespace assay::gpu
