// Families of models by construction, from one base: a granularity ladder (the same experts cut
// finer), other numbers of shared experts, a horizon ladder (the same model for longer), and a
// depth dial.
//
// Granularity: E experts instead of E0, each token choosing K = K0 E / E0 of them and S = S0 E / E0
// shared, of width F = F0 E0 / E: E F, K F and S F stay, so routed and active widths do. The router
// alone grows, by C (E - E0) per block. A quantity that is to be equal in spite of it takes the F,
// a multiple of `multiple`, whose value is nearest to the base's. With normalised gates the routed
// branch begins K0 / K times as large as the base's (models/audit/routed_scale.h), unless
// gate_scale is to keep its size.
//
// Shared: S shared experts beside the same E and K, with F = F0 (K0 + S0) / (K0 + S): the active
// width stays, and all experts are as much narrower or wider.
//
// Depth: L blocks instead of L0 with the width in proportion, C = C0 L / L0 rounded to whole heads,
// and the inner widths F = F0 C / C0 rounded to multiples of `multiple`.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace assay {

enum class LadderEqual { kWidth, kTotal, kActive, kFlops };
// gate_scale: the base's, or what lets the routed branch begin as large.
enum class RungGates { kOfBase, kKeepBranchScale };

struct Rung {
  std::string name;  // "e16", "s1", "d8", "x3"
  Config config;
  std::string changes;  // as YAML lines below the include of the base: "model: {...}\n"
};

// Whether the base trains run.steps steps by a contract `steps` of its own.
bool has_own_steps(const Config& base);

// UserError: a base without experts in any block; experts, choices or shared experts that are no
// whole number.
Rung granularity_rung(const Config& base, int64_t experts, LadderEqual equal, int64_t multiple,
                      RungGates gates = RungGates::kOfBase);
// UserError likewise; shared may be 0.
Rung shared_rung(const Config& base, int64_t shared, LadderEqual equal, int64_t multiple);
// run.steps and the warm-down times `factor`; the warm-up keeps its steps. A warm-down that begins
// where the warm-up ends does so here, too. UserError unless has_own_steps(base).
Rung horizon_rung(const Config& base, int64_t factor);
// UserError: a mixture whose dense layers would be all that is left.
Rung depth_rung(const Config& base, int64_t layers, int64_t multiple);

// 100 (value - base) / base of P_total, P_active and FLOPs per token.
struct RungResiduals {
  double total = 0, active = 0, flops = 0;
};
RungResiduals rung_residuals(const Config& base, const Config& rung);

}  // namespace assay
