// Buffers that all layers of a decoder share.
#pragma once

#include "engine/config/config.h"
#include "models/decoder/residual_stream.h"
#include "models/linear/quantised_scratch.h"
#include "models/parameters/purpose.h"

namespace assay {

// Their contents do not outlive the sublayer that wrote them, except
// branch, dresid and dbranch, which pass between sublayers.
template <typename T>
struct Scratch {
  View<T, 2> branch;                 // (N, C)
  View<T, 2> dresid;                 // (N, C)   passed between sublayers in backward
  View<T, 2> dbranch;                // (N, C)   the same; planned if a branch's gain is not 1
  View<T, 2> dnorm;                  // (N, C)
  View<float, 2> norm_partial;       // (rmsnorm_backward_blocks(N), C)
  View<T, 2> dqkv;                   // (N, (Hq + 2 Hkv) D)
  View<float, 2> qk_norm_partial;    // (qk_norm_backward_blocks(N), 2 D)   with QK-norm
  View<float, 1> attention_partial;  // (attention_backward_scratch)
  View<T, 2> datt;                   // (N, Hq D)
  View<T, 1> dgate_up;               // the larger of N 2F and A 2Fe
  View<T, 1> dh;                     // half the size of dgate_up
  // MoE, A = N K.
  View<T, 2> dexpert_out;             // (A, C)
  View<T, 2> dexpert_in;              // (A, C)
  View<T, 2> shared_out;              // (N, C)
  View<float, 2> dgate;               // (N, K)
  View<T, 2> dlogits;                 // (N, E)
  View<float, 2> dchosen;             // (N, K)
  View<int32_t, 2> count_partial;     // (router_pieces, E)   for router_forward
  View<float, 2> share_partial;       // (router_pieces, E)
  View<double, 2> measure_partial;    // (router_pieces, kRouterMeasures)
  View<int32_t, 2> dispatch_partial;  // (dispatch_pieces(N), E)
  QuantScratch quant;                 // planned if a product is quantised

  // For inference, plans only what forward needs. expert_rows: that the experts of this rank get at
  // once; 0: the assignments of the micro-batch.
  void plan(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest, Purpose purpose,
            Backend backend, int64_t expert_rows = 0);

 private:
  void plan_backward(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest,
                     Backend backend, int64_t expert_rows);
};

}  // namespace assay
