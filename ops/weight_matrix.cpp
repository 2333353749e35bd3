#include "ops/weight_matrix.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/cpu_gemm/gemm.h"

namespace assay {

namespace {

// Rows of the weight that a thread packs into both layouts at a time: whole panels and steps.
constexpr int64_t kPieceRows = 64;
// A packed weight of so many bytes is written past the caches: until the next forward pass they
// hold other things, and a store that first reads its line costs twice as much.
constexpr int64_t kBytesPastCaches = 256 << 10;

}  // namespace

// Both layouts are whole 64-byte lines: a panel is a multiple of 16 words wide.
template <typename T>
int64_t weight_pack_dgrad_offset(int64_t out, int64_t in) {
  return 4 * panel::words<T>(in, out);
}

template <typename T>
int64_t weight_pack_bytes(int64_t out, int64_t in) {
  return weight_pack_dgrad_offset<T>(out, in) + 4 * panel::words<T>(out, in);
}

template <typename T>
int64_t weight_stack_pack_bytes(int64_t experts, int64_t out, int64_t in) {
  return experts * weight_pack_bytes<T>(out, in);
}

namespace cpu {

template <typename T>
void weight_stack_pack(Exec on, const WeightStackPack<T>& a) {
  const int64_t experts = a.plain.dim[0], out = a.plain.dim[1], in = a.plain.dim[2];
  constexpr int64_t kPanels = kPieceRows / panel::kPanelCols<T>;
  constexpr int64_t kSteps = kPieceRows / panel::kStep<T>;
  const int64_t panels = ceil_div(out, panel::kPanelCols<T>), steps = panel::steps<T>(out);
  const int64_t pieces = ceil_div(out, kPieceRows);
  const bool past_caches = a.packed.dim[0] >= kBytesPastCaches;
  parallel_for(on, experts * pieces, [&](int64_t p) {
    const int64_t e = p / pieces, piece = p % pieces;
    const T* w = a.plain.data + e * out * in;
    std::byte* packed = a.packed.data + e * weight_pack_bytes<T>(out, in);
    panel::pack_transposed<T>({.panels = reinterpret_cast<uint32_t*>(packed),
                               .w = w,
                               .cols = out,
                               .k = in,
                               .past_caches = past_caches},
                              piece * kPanels, std::min(panels, (piece + 1) * kPanels));
    packed += weight_pack_dgrad_offset<T>(out, in);
    panel::pack_rows<T>({.panels = reinterpret_cast<uint32_t*>(packed),
                         .panel_words = panel::kPanelCols<T> * steps,
                         .panel_cols = panel::kPanelCols<T>,
                         .x = w,
                         .stride = in,
                         .row = nullptr,
                         .k = out,
                         .cols = in,
                         .past_caches = past_caches},
                        piece * kSteps, std::min(steps, (piece + 1) * kSteps));
  });
}

}  // namespace cpu

template <typename T>
void weight_stack_pack(Exec on, const WeightStackPack<T>& a) {
  if (on.gpu) return;  // products there read the plain weight
  const int64_t want = weight_stack_pack_bytes<T>(a.plain.dim[0], a.plain.dim[1], a.plain.dim[2]);
  CHECK(a.packed.dim[0] == want, "weight_stack_pack: packed has %ld bytes, %s needs %ld",
        long(a.packed.dim[0]), shapes("weight", a.plain).c_str(), long(want));
  CHECK(reinterpret_cast<uintptr_t>(a.packed.data) % 64 == 0,
        "weight_stack_pack: packed at %p is not 64-byte aligned",
        static_cast<void*>(a.packed.data));
  const ProfileScope timed(on, "weight_pack", weight_stack_pack_cost(a));
  cpu::weight_stack_pack(on, a);
}

template <typename T>
void check_packed(Exec on, const char* op, const WeightMatrix<T>& w) {
  if (on.gpu) return;
  const int64_t want = weight_pack_bytes<T>(w.plain.dim[0], w.plain.dim[1]);
  CHECK(w.packed.dim[0] == want, "%s: packed weight (%ld, %ld) has %ld bytes, needs %ld", op,
        long(w.plain.dim[0]), long(w.plain.dim[1]), long(w.packed.dim[0]), long(want));
}

template <typename T>
void weight_pack(Exec on, const WeightPack<T>& a) {
  weight_stack_pack<T>(
      on, {.packed = a.packed, .plain = {a.plain.data, {1, a.plain.dim[0], a.plain.dim[1]}}});
}

template int64_t weight_pack_dgrad_offset<float>(int64_t, int64_t);
template int64_t weight_pack_dgrad_offset<bf16>(int64_t, int64_t);
template int64_t weight_pack_bytes<float>(int64_t, int64_t);
template int64_t weight_pack_bytes<bf16>(int64_t, int64_t);
template int64_t weight_stack_pack_bytes<float>(int64_t, int64_t, int64_t);
template int64_t weight_stack_pack_bytes<bf16>(int64_t, int64_t, int64_t);
template void check_packed<float>(Exec, const char*, const WeightMatrix<float>&);
template void check_packed<bf16>(Exec, const char*, const WeightMatrix<bf16>&);
template void weight_pack<float>(Exec, const WeightPack<float>&);
template void weight_pack<bf16>(Exec, const WeightPack<bf16>&);
template void weight_stack_pack<float>(Exec, const WeightStackPack<float>&);
template void weight_stack_pack<bf16>(Exec, const WeightStackPack<bf16>&);

}  // namespace assay
