// KV cache write: copies the keys and values of new tokens to their rows of a cache. Exact.
//
//   kept[row[i], c] = x[i, column + c]
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct KvCacheWrite {
  View<T, 2> kept;             // acc (P, W)   the cache; rows that are not in `row` stay
  View<const T, 2> x;          // in  (N, X)   X >= column + W
  View<const int32_t, 1> row;  // in  (N)      in [0, P), distinct
  int64_t column;
};

template <typename T>
void kv_cache_write(Exec on, const KvCacheWrite<T>& a);

// One row is read and written per token.
template <typename T>
Cost kv_cache_write_cost(const KvCacheWrite<T>& a) {
  return {
      .bytes = view_bytes(a.row) + 2.0 * double(a.row.dim[0] * a.kept.dim[1]) * double(sizeof(T)),
      .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (kv_cache_write.cu).
namespace gpu {
void kv_cache_write(Exec on, const KvCacheWrite<float>& a);
void kv_cache_write(Exec on, const KvCacheWrite<bf16>& a);
}  // namespace gpu

}  // namespace assay
