#include "ops/muon.h"

#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

template <bool kSquare, typename T>
void update_piece(const MuonUpdate<T>& a, int64_t begin, int64_t end) {
  [[maybe_unused]] double grads = 0, updates = 0, masters = 0;
  const bool emit = !a.weight.empty();
  float* __restrict master = a.master.data;
#pragma omp simd reduction(+ : grads, updates, masters)
  for (int64_t i = begin; i < end; ++i) {
    const float off = a.decay * master[i] + a.rate * float(a.o[i]);
    const float p = master[i] - off;
    master[i] = p;
    if constexpr (kSquare) {
      grads += double(a.grad[i]) * double(a.grad[i]);
      updates += double(off) * double(off);
      masters += double(p) * double(p);
    }
  }
  if (emit) {
    for (int64_t i = begin; i < end; ++i) round_to(a.weight[i], master[i]);
  }
  if constexpr (kSquare) {
    double* sums = a.squares.row(begin / kAdamWPiece);
    sums[0] = grads;
    sums[1] = updates;
    sums[2] = masters;
  }
}

}  // namespace

namespace cpu {

void muon_momentum(Exec on, const MuonMomentum& a) {
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  const float mu = a.mu, rest = float(1 - double(a.mu));
  const bool nesterov = a.look == MuonLook::kNesterov;
  parallel_ranges(on, a.grad.dim[0], kAdamWPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = rest * (a.grad[i] * scale);
      const float b = mu * a.momentum[i] + g;
      a.momentum[i] = b;
      round_to(a.u[i], nesterov ? mu * b + g : b);
    }
  });
}

template <typename T>
void muon_update(Exec on, const MuonUpdate<T>& a) {
  parallel_ranges(on, a.o.dim[0], kAdamWPiece, [&](int64_t begin, int64_t end) {
    if (a.squares.empty()) {
      update_piece<false>(a, begin, end);
    } else {
      update_piece<true>(a, begin, end);
    }
  });
}

}  // namespace cpu

void muon_momentum(Exec on, const MuonMomentum& a) {
  const ProfileScope timed(on, "muon_momentum", muon_momentum_cost(a));
  const int64_t n = a.grad.dim[0];
  CHECK(
      a.momentum.dim[0] == n && a.u.dim[0] == n &&
          (a.grad_scale.empty() || a.grad_scale.dim[0] == 1),
      "muon_momentum: %s",
      shapes("grad", a.grad, "momentum", a.momentum, "u", a.u, "grad_scale", a.grad_scale).c_str());
  if (on.gpu) return gpu::muon_momentum(on, a);
  cpu::muon_momentum(on, a);
}

template <typename T>
void muon_update(Exec on, const MuonUpdate<T>& a) {
  const ProfileScope timed(on, "muon_update", muon_update_cost(a));
  const int64_t n = a.o.dim[0];
  CHECK(a.master.dim[0] == n && a.grad.dim[0] == n && (a.weight.empty() || a.weight.dim[0] == n),
        "muon_update: %s",
        shapes("o", a.o, "master", a.master, "grad", a.grad, "weight", a.weight).c_str());
  CHECK(a.squares.empty() || (a.squares.dim[0] == adamw_pieces(n) && a.squares.dim[1] == 3),
        "muon_update: squares (%ld, %ld) for %ld pieces", long(a.squares.dim[0]),
        long(a.squares.dim[1]), long(adamw_pieces(n)));
  if (on.gpu) return gpu::muon_update(on, a);
  cpu::muon_update(on, a);
}

template void muon_update<float>(Exec, const MuonUpdate<float>&);
template void muon_update<bf16>(Exec, const MuonUpdate<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(muon_momentum, MuonMomentum)
ASSAY_GPU_ABSENT(muon_update, MuonUpdate<float>)
ASSAY_GPU_ABSENT(muon_update, MuonUpdate<bf16>)
}  // namespace gpu

}  // namespace assay
