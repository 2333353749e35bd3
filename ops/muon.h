// The elementwise parts of a step of Muon (K. Jordan, "Muon: An optimizer for hidden layers in
// neural networks", 2024) on a tensor of matrices; between them stands ops/newton_schulz.h.
//
//   muon_momentum:  g = grad * grad_scale          b = mu b + (1 - mu) g
//                   u = bf16(nesterov ? mu b + (1 - mu) g : b)
//   muon_update:    p -= decay p + rate o          weight = p rounded to T
//
// o is u orthogonalised, decay is lr * weight_decay, rate is lr times the factor of the matrix's
// shape. As in torch.optim.Muon of PyTorch 2.9. Its documentation writes b = mu b + g: 1 / (1 - mu)
// times as large, which the orthogonalisation divides out.
//
// With `squares`, muon_update sums in double, piece by piece as AdamW, the squares of grad (before
// grad_scale), of the update subtracted from p, and of p after the step. The other results keep
// their bits. Arithmetic is in float. Reference: tests/ref/muon.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/adamw.h"

namespace assay {

enum class MuonLook { kPlain, kNesterov };

struct MuonMomentum {
  View<bf16, 1> u;                       // out (n)
  View<float, 1> momentum;               // acc (n)   b
  View<const float, 1> grad;             // in  (n)
  View<const float, 1> grad_scale = {};  // in  (1)   optional, e.g. the clip factor
  float mu = 0.95f;
  MuonLook look = MuonLook::kNesterov;
};

template <typename T>
struct MuonUpdate {
  View<float, 1> master;         // acc (n)   p
  View<T, 1> weight = {};        // out (n)   empty if the master is the weight
  View<const bf16, 1> o;         // in  (n)
  View<const float, 1> grad;     // in  (n)   read for squares only
  View<double, 2> squares = {};  // out (adamw_pieces(n), 3)   grad^2, update^2, p^2; optional
  float decay;
  float rate;
};

void muon_momentum(Exec on, const MuonMomentum& a);
template <typename T>
void muon_update(Exec on, const MuonUpdate<T>& a);

inline Cost muon_momentum_cost(const MuonMomentum& a) {
  return {.bytes = view_bytes(a.grad, a.grad_scale, a.u) + 2 * view_bytes(a.momentum),
          .flops = 6.0 * double(a.grad.size())};
}
template <typename T>
Cost muon_update_cost(const MuonUpdate<T>& a) {
  return {.bytes = view_bytes(a.weight, a.o, a.squares) + 2 * view_bytes(a.master) +
                   double(a.squares.empty() ? 0 : a.grad.bytes()),
          .flops = 4.0 * double(a.o.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (muon.cu).
namespace gpu {
void muon_momentum(Exec on, const MuonMomentum& a);
void muon_update(Exec on, const MuonUpdate<float>& a);
void muon_update(Exec on, const MuonUpdate<bf16>& a);
}  // namespace gpu

}  // namespace assay
