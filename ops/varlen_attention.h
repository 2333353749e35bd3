// Causal attention of texts of any lengths, one after another in qkv; a text may continue rows that
// are shared or cached. For evaluating many prompts with common beginnings, and for generation.
//
//   row t of segment s sees the rows of its prefix, then rows begin .. t of its own:
//   out[t] = sum_j softmax_j(q[t] . k[j] / sqrt(D)) v[j]      t >= query_begin
//
// Rows before query_begin are only seen and have no out. A prefix is in qkv itself (the question
// that several answers follow) or in a KV cache. Forward only. With kTiles, and on a GPU, a row has
// the same bits however its text is cut into prefix and own rows; with kTiles on the CPU they are
// those of attention_forward. Query head h reads key-value head h / (Hq / Hkv). Reference:
// tests/ref/varlen_attention.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

struct AttentionSegment {
  int64_t begin, end;                // rows of qkv
  int64_t prefix_begin, prefix_end;  // rows of `prefix`; equal: no prefix
  int64_t query_begin = 0;           // a row of qkv; <= begin: all rows have a query
};

// What segments ask for.
struct AttentionWork {
  double pairs = 0;         // (query, key that it sees)
  int64_t queries = 0;      // rows of out
  int64_t prefix_rows = 0;  // rows of `prefix` that some query sees, each once
};
// Reads host memory.
AttentionWork attention_work(View<const AttentionSegment, 1> segment);

// How the CPU computes the rows of a segment with a prefix: 64 at a time as matrix products, or one
// by one, which is faster for one or two rows.
enum class BehindPrefix { kTiles, kRowByRow };

template <typename T>
struct VarlenAttention {
  View<T, 2> out;           // out (N, Hq D)
  View<const T, 2> qkv;     // in  (N, (Hq + 2 Hkv) D)
  View<const T, 2> prefix;  // in  (P, W)   k heads at prefix_column, then v heads; may be qkv
  View<const AttentionSegment, 1> segment;  // in  (S)      each row of qkv is in one of them
  AttentionWork work;                       // of the segments, which may be on a GPU; for the cost
  int64_t prefix_column;
  int64_t heads;     // Hq, a multiple of Hkv
  int64_t kv_heads;  // Hkv
  int64_t head_dim;  // D: 32, 64 or 128
  BehindPrefix behind_prefix;
};

template <typename T>
void varlen_attention(Exec on, const VarlenAttention<T>& a);

// q of the queries, k and v of all rows and of the prefixes are read; out is written.
template <typename T>
Cost varlen_attention_cost(const VarlenAttention<T>& a) {
  const int64_t seen = a.qkv.dim[0] + (a.prefix.data == a.qkv.data ? 0 : a.work.prefix_rows);
  const int64_t heads = 2 * a.work.queries * a.heads + 2 * seen * a.kv_heads;
  return {.bytes = view_bytes(a.segment) + double(heads * a.head_dim) * double(sizeof(T)),
          .flops = 4.0 * a.work.pairs * double(a.heads * a.head_dim)};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (varlen_attention.cu).
namespace gpu {
void varlen_attention(Exec on, const VarlenAttention<float>& a);
void varlen_attention(Exec on, const VarlenAttention<bf16>& a);
}  // namespace gpu

}  // namespace assay
