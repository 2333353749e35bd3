#include "models/audit/horizon.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace assay {
namespace {

constexpr double kUsualLandings[] = {0.02, 0.05, 0.1, 0.2, 0.5, 1};

void require_active_width(const Config& config, const Audit& audit) {
  if (double(audit.ffn_active_width) == config.contract.coefficient) return;
  const ModelConfig& m = config.model;
  const std::string width =
      moe_blocks(m) > 0
          ? strprintf("(K + S) * F = (%ld + %ld) * %ld = %ld", long(m.moe->top_k),
                      long(m.moe->shared), long(m.moe->expert_ffn), long(audit.ffn_active_width))
          : strprintf("ffn = %ld", long(audit.ffn_active_width));
  throw UserError(strprintf("the contract active-width compares models with an active FFN width of "
                            "%.10g, this one has %s",
                            config.contract.coefficient, width.c_str()),
                  "change model.ffn or model.moe.expert_ffn, or choose another contract");
}

}  // namespace

const std::vector<std::string>& contract_kinds() {
  static const std::vector<std::string> kinds = choice_names<ContractKind>();
  return kinds;
}

bool is_tokens_per_parameter(ContractKind kind) {
  return kind == ContractKind::kActiveDN || kind == ContractKind::kTotalDN;
}

SharedExperts shared_experts(const ContractConfig& contract) {
  return contract.shared_in_total ? SharedExperts::kInTotal : SharedExperts::kLeftOut;
}

int64_t contract_parameters(ContractKind kind, const Audit& audit, SharedExperts shared) {
  CHECK(is_tokens_per_parameter(kind), "contract %s has no parameter count", name_of(kind));
  if (kind == ContractKind::kActiveDN) return audit.active;
  return audit.total - (shared == SharedExperts::kLeftOut ? audit.parameters.shared_experts : 0);
}

int64_t horizon_steps(int64_t parameters, double coefficient, int64_t tokens_per_step) {
  if (!(coefficient > 0 && coefficient <= 1e12))
    throw UserError(strprintf("a contract cannot have %g tokens per parameter", coefficient),
                    "give contract.coefficient (--coefficient), for example 20");
  return whole_quotient(parameters, coefficient, tokens_per_step);
}

bool horizon_is_known(const Config& config) {
  const ContractConfig& c = config.contract;
  return c.reference.empty() && (c.kind != ContractKind::kSeconds || c.step_seconds > 0);
}

int64_t horizon(const Config& config, const Audit& a) {
  const ContractConfig& c = config.contract;
  CHECK(horizon_is_known(config), "the contract %s is not resolved", name_of(c.kind));
  if (is_tokens_per_parameter(c.kind)) {
    return horizon_steps(contract_parameters(c.kind, a, shared_experts(c)), c.coefficient,
                         config.run.batch_tokens);
  }
  if (c.kind == ContractKind::kFlops) {
    return whole_quotient(1, c.coefficient, __int128(a.flops_per_token) * config.run.batch_tokens);
  }
  if (c.kind == ContractKind::kSeconds) {
    const double steps = std::floor(std::nextafter(c.coefficient / c.step_seconds, INFINITY));
    return whole_quotient(1, steps, 1);
  }
  if (c.kind == ContractKind::kActiveWidth) require_active_width(config, a);
  return c.horizon > 0 ? c.horizon : config.run.steps;
}

int64_t horizon(const Config& config) {
  return horizon(config, audit(config));
}

int64_t planned_steps(const Config& config) {
  const ContractConfig& c = config.contract;
  const int64_t full = horizon(config);
  if (full < 1)
    throw UserError(strprintf("the contract %s with a coefficient of %g ends before one step of "
                              "%ld tokens",
                              name_of(c.kind), c.coefficient, long(config.run.batch_tokens)),
                    "raise contract.coefficient or lower run.batch_tokens");
  return fraction_of_steps(full, c.fraction);
}

std::vector<double> landing_fractions(const ContractConfig& c) {
  std::vector<double> fractions;
  if (c.landings) {
    fractions = *c.landings;
  } else if (c.kind != ContractKind::kSteps) {
    for (const double f : kUsualLandings) {
      if (f < c.fraction) fractions.push_back(f);
    }
    fractions.push_back(c.fraction);
  }
  std::sort(fractions.begin(), fractions.end());
  fractions.erase(std::unique(fractions.begin(), fractions.end()), fractions.end());
  return fractions;
}

std::vector<Landing> landings(const Config& config) {
  std::vector<Landing> all;
  const int64_t full = horizon(config);
  for (const double f : landing_fractions(config.contract)) {
    all.push_back({.fraction = f, .step = fraction_of_steps(full, f)});
  }
  return all;
}

}  // namespace assay
