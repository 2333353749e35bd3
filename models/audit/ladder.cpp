#include "models/audit/ladder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "engine/config/check.h"
#include "engine/config/fields.h"
#include "engine/config/schedule.h"
#include "models/audit/audit.h"
#include "models/audit/routed_scale.h"

namespace assay {

namespace {

int64_t nearest_multiple(double value, int64_t multiple) {
  return std::max<int64_t>(1, std::llround(value / double(multiple))) * multiple;
}

double measure(const Config& config, LadderEqual equal) {
  const Audit a = audit(config);
  if (equal == LadderEqual::kTotal) return double(a.total);
  if (equal == LadderEqual::kActive) return double(a.active);
  return double(a.flops_per_token);
}

constexpr int64_t kMostChosen = 64;  // the largest model.moe.top_k

// The numbers of experts that give whole K and S, and a whole F without a contract.
std::string possible_experts(const MoeConfig& m, bool whole_width) {
  int64_t step = m.experts / std::gcd(m.experts, m.top_k);
  if (m.shared > 0) step = std::lcm(step, m.experts / std::gcd(m.experts, m.shared));
  std::string text;
  int count = 0;
  for (int64_t e = step; e <= 64 * m.experts && e <= 65536 && count < 8; e *= 2) {
    if (m.top_k * e / m.experts > kMostChosen) break;
    if (whole_width && (m.experts * m.expert_ffn) % e != 0) break;
    text += (text.empty() ? "" : ", ") + std::to_string(e);
    ++count;
  }
  return text.empty() ? "none divide this base" : "for example " + text;
}

// The width whose measure is nearest to the target; measures grow with the width.
int64_t width_for(Config config, LadderEqual equal, double target, int64_t multiple) {
  const auto value = [&](int64_t width) {
    config.model.moe->expert_ffn = width;
    return measure(config, equal);
  };
  const double one = value(multiple), step = value(2 * multiple) - one;
  const int64_t n = std::max<int64_t>(1, std::llround((target - one) / step) + 1);
  return n * multiple;
}

void require_mixture(const Config& base, const char* what) {
  if (moe_blocks(base.model) > 0) return;
  const std::string dense =
      base.model.moe ? strprintf(" (model.moe.first_dense_layers = %ld of %ld layers)",
                                 long(base.model.moe->first_dense_layers), long(base.model.layers))
                     : "";
  throw UserError("the base is dense" + dense + ": there are no experts " + what,
                  "give a mixture, e.g. --like models/presets/cpu/moe.yaml");
}

// The warm-down of a rung: its share of the steps, or all that follow the warm-up where the base's
// takes all of them. A cosine without a length does that by itself, and so stays without.
int64_t longer_warmdown(const Config& base, const Schedule& schedule, int64_t factor) {
  const ScheduleConfig& s = base.schedule;
  const bool given = s.warmdown > 0 || s.warmdown_fraction.value_or(0) > 0;
  if (s.decay == DecayShape::kCosine && !given) return 0;
  const bool to_the_end =
      schedule.warmdown > 0 && schedule.warmup + schedule.warmdown == schedule.steps;
  return to_the_end ? schedule.steps * factor - schedule.warmup : schedule.warmdown * factor;
}

}  // namespace

Rung granularity_rung(const Config& base, int64_t experts, LadderEqual equal, int64_t multiple,
                      RungGates gates) {
  require_mixture(base, "to cut finer");
  const MoeConfig& m = *base.model.moe;
  const int64_t width = m.experts * m.expert_ffn;
  const bool whole_width = equal == LadderEqual::kWidth;
  if ((m.top_k * experts) % m.experts != 0 || (m.shared * experts) % m.experts != 0 ||
      m.top_k * experts < m.experts || (whole_width && width % experts != 0)) {
    throw UserError(
        strprintf("%ld experts: from E = %ld, K = %ld, S = %ld, F = %ld this needs K = %.4g, S = "
                  "%.4g, F = %.4g",
                  long(experts), long(m.experts), long(m.top_k), long(m.shared), long(m.expert_ffn),
                  double(m.top_k * experts) / double(m.experts),
                  double(m.shared * experts) / double(m.experts), double(width) / double(experts)),
        possible_experts(m, whole_width) + (whole_width ? "; --contract solves for F" : ""));
  }
  Rung rung{.name = "e" + std::to_string(experts), .config = base, .changes = ""};
  MoeConfig& moe = *rung.config.model.moe;
  moe.experts = experts;
  moe.top_k = m.top_k * experts / m.experts;
  moe.shared = m.shared * experts / m.experts;
  moe.expert_ffn =
      whole_width ? width / experts : width_for(rung.config, equal, measure(base, equal), multiple);
  std::string router;
  if (gates == RungGates::kKeepBranchScale) {
    moe.router.gate_scale =
        m.router.gate_scale * gate_divisor(rung.config.model) / gate_divisor(base.model);
    router = ", router: {gate_scale: " + yaml_scalar(moe.router.gate_scale) + "}";
  }
  rung.changes = strprintf(
      "model: {moe: {experts: %ld, top_k: %ld, shared: %ld, expert_ffn: %ld%s}}\n",
      long(moe.experts), long(moe.top_k), long(moe.shared), long(moe.expert_ffn), router.c_str());
  validate(rung.config);
  return rung;
}

Rung shared_rung(const Config& base, int64_t shared, LadderEqual equal, int64_t multiple) {
  require_mixture(base, "to share");
  const MoeConfig& m = *base.model.moe;
  const int64_t width = (m.top_k + m.shared) * m.expert_ffn, parts = m.top_k + shared;
  const bool whole_width = equal == LadderEqual::kWidth;
  if (whole_width && width % parts != 0) {
    throw UserError(
        strprintf("%ld shared experts: from K = %ld, S = %ld, F = %ld the same active width needs "
                  "F = %.4g",
                  long(shared), long(m.top_k), long(m.shared), long(m.expert_ffn),
                  double(width) / double(parts)),
        "--contract total, active or flops solves for a whole F that is nearest to it");
  }
  Rung rung{.name = "s" + std::to_string(shared), .config = base, .changes = ""};
  MoeConfig& moe = *rung.config.model.moe;
  moe.shared = shared;
  moe.expert_ffn =
      whole_width ? width / parts : width_for(rung.config, equal, measure(base, equal), multiple);
  rung.changes = strprintf("model: {moe: {shared: %ld, expert_ffn: %ld}}\n", long(moe.shared),
                           long(moe.expert_ffn));
  validate(rung.config);
  return rung;
}

bool has_own_steps(const Config& base) {
  const ContractConfig& c = base.contract;
  return c.kind == ContractKind::kSteps && c.reference.empty() && c.fraction == 1;
}

// The rungs' matrix fixes their steps, so the base's must be its own, too.
void require_own_steps(const Config& base) {
  const ContractConfig& c = base.contract;
  if (has_own_steps(base)) return;
  const std::string by =
      c.reference.empty()
          ? strprintf("contract.kind %s and contract.fraction %g", name_of(c.kind), c.fraction)
          : "contract.reference " + c.reference;
  throw UserError(strprintf("horizons are multiples of run.steps = %ld, but its steps follow from ",
                            long(base.run.steps)) +
                      by,
                  "give a configuration with contract: {kind: steps}, and run.steps as `assay "
                  "audit` shows them");
}

Rung horizon_rung(const Config& base, int64_t factor) {
  require_own_steps(base);
  Rung rung{.name = "x" + std::to_string(factor), .config = base, .changes = ""};
  const Schedule schedule = make_schedule(base);
  Config& c = rung.config;
  c.run.steps = base.run.steps * factor;
  c.schedule.warmup = schedule.warmup;
  c.schedule.warmup_fraction.reset();
  c.schedule.warmdown = longer_warmdown(base, schedule, factor);
  c.schedule.warmdown_fraction.reset();
  rung.changes = strprintf(
      "run: {steps: %ld}\nschedule: {warmup: %ld, warmup_fraction: null, warmdown: %ld, "
      "warmdown_fraction: null}\n",
      long(c.run.steps), long(c.schedule.warmup), long(c.schedule.warmdown));
  validate(c);
  return rung;
}

Rung depth_rung(const Config& base, int64_t layers, int64_t multiple) {
  const ModelConfig& b = base.model;
  Rung rung{.name = "d" + std::to_string(layers), .config = base, .changes = ""};
  ModelConfig& m = rung.config.model;
  const int64_t head = b.resolved_head_dim();
  m.layers = layers;
  m.hidden = nearest_multiple(double(b.hidden) * double(layers) / double(b.layers), head);
  const double wider = double(m.hidden) / double(b.hidden);
  m.heads = std::max<int64_t>(1, std::llround(double(b.heads) * wider));
  if (b.kv_heads > 0) {
    const int64_t group = b.heads / b.kv_heads;
    m.heads = std::max(group, m.heads / group * group);
    m.kv_heads = m.heads / group;
  }
  m.head_dim = head;
  m.ffn = nearest_multiple(double(b.ffn) * wider, multiple);
  rung.changes = strprintf(
      "model:\n  layers: %ld\n  hidden: %ld\n  heads: %ld\n  kv_heads: %ld\n"
      "  head_dim: %ld\n  ffn: %ld\n",
      long(m.layers), long(m.hidden), long(m.heads), long(m.kv_heads), long(m.head_dim),
      long(m.ffn));
  if (m.moe) {
    m.moe->expert_ffn = nearest_multiple(double(b.moe->expert_ffn) * wider, multiple);
    rung.changes += strprintf("  moe: {expert_ffn: %ld}\n", long(m.moe->expert_ffn));
  }
  validate(rung.config);
  if (moe_blocks(b) > 0 && moe_blocks(m) == 0) {
    throw UserError(strprintf("%ld layers: the base's model.moe.first_dense_layers = %ld leaves no "
                              "block for the experts",
                              long(layers), long(b.moe->first_dense_layers)),
                    "give more layers than that, or a base with fewer dense ones");
  }
  return rung;
}

RungResiduals rung_residuals(const Config& base, const Config& rung) {
  const Audit a = audit(base), b = audit(rung);
  const auto percent = [](int64_t x, int64_t y) { return 100.0 * double(x - y) / double(y); };
  return {.total = percent(b.total, a.total),
          .active = percent(b.active, a.active),
          .flops = percent(b.flops_per_token, a.flops_per_token)};
}

}  // namespace assay
