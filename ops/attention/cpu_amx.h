// The bf16 bodies of ops/attention.h on the CPU matrix unit: the same tiles of 64 queries by 64
// keys and the same softmax; only the products run on the unit, with sums in the order of
// ops/cpu_gemm/amx.h.
#pragma once

#include "ops/attention.h"
#include "ops/attention/cpu_sequence.h"
#include "ops/cpu_gemm/amx.h"

namespace assay::attention {

// forward_block() of ops/attention/cpu_sequence.h on the unit.
void forward_block_amx(const Text<bf16>& text, int64_t head, int64_t block);
// The whole ops.
void forward_amx(Exec on, const AttentionForward<bf16>& a);
void backward_amx(Exec on, const AttentionBackward<bf16>& a);

}  // namespace assay::attention
