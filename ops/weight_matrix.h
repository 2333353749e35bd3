// A weight as the matrix products read it: the plain (out, in) array and a packed copy of it.
//
// The packed copy is for the CPU. It holds two panel layouts (ops/cpu_gemm/gemm.h), one for
// y = x W^T and one for dx = dy W, and is made again after every change of the weight; forward and
// dgrad read only the copy. Padding is zero. On a GPU packing does nothing, and products read the
// plain weight.
#pragma once

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct WeightMatrix {
  View<const T, 2> plain;           // in  (out, in)
  View<const std::byte, 1> packed;  // in  (weight_pack_bytes<T>(out, in))
};

template <typename T>
struct WeightPack {
  View<std::byte, 1> packed;  // out (weight_pack_bytes<T>(out, in))   64-byte aligned
  View<const T, 2> plain;     // in  (out, in)
};

// What becomes of the values that a weight gradient holds: the product is added to them, or takes
// their place, and they are not read.
enum class GradientSum { kAdd, kStore };

// One weight per expert.
template <typename T>
struct WeightStack {
  View<const T, 3> plain;           // in  (E, out, in)
  View<const std::byte, 1> packed;  // in  (weight_stack_pack_bytes<T>(E, out, in))
};

template <typename T>
struct WeightStackPack {
  View<std::byte, 1> packed;  // out (weight_stack_pack_bytes<T>(E, out, in))   64-byte aligned
  View<const T, 3> plain;     // in  (E, out, in)
};

template <typename T>
int64_t weight_pack_bytes(int64_t out, int64_t in);
template <typename T>
int64_t weight_stack_pack_bytes(int64_t experts, int64_t out, int64_t in);
// Byte offset of the layout of dx = dy W in one packed weight.
template <typename T>
int64_t weight_pack_dgrad_offset(int64_t out, int64_t in);

// The packed copy has its size; on a GPU nothing reads it.
template <typename T>
void check_packed(Exec on, const char* op, const WeightMatrix<T>& w);

template <typename T>
void weight_pack(Exec on, const WeightPack<T>& a);
template <typename T>
void weight_stack_pack(Exec on, const WeightStackPack<T>& a);

template <typename T>
Cost weight_stack_pack_cost(const WeightStackPack<T>& a) {
  return {.bytes = view_bytes(a.plain, a.packed), .flops = 0};
}

}  // namespace assay
