#include "lab/dissect/damage.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace assay {

Damage damage_of(std::span<const SequenceNats> changed, std::span<const SequenceNats> base) {
  CHECK(changed.size() == base.size(), "%zu and %zu sequences", changed.size(), base.size());
  double sum = 0;
  int64_t targets = 0;
  for (size_t s = 0; s < base.size(); ++s) {
    CHECK(changed[s].targets == base[s].targets, "sequence %zu: %ld and %ld targets", s,
          long(changed[s].targets), long(base[s].targets));
    sum += changed[s].nats - base[s].nats;
    targets += base[s].targets;
  }
  Damage damage{.nats = targets > 0 ? sum / double(targets) : 0, .se = {}, .targets = targets};
  if (base.size() < 2 || targets == 0) return damage;
  double squares = 0;
  for (size_t s = 0; s < base.size(); ++s) {
    const double rest = changed[s].nats - base[s].nats - damage.nats * double(base[s].targets);
    squares += rest * rest;
  }
  const double n = double(base.size());
  damage.se = std::sqrt(n / (n - 1) * squares) / double(targets);
  return damage;
}

Damage loss_of(std::span<const SequenceNats> nats) {
  std::vector<SequenceNats> nothing(nats.begin(), nats.end());
  for (SequenceNats& s : nothing) s.nats = 0;
  return damage_of(nats, nothing);
}

const char* removal_name(Removal removal) {
  switch (removal) {
    case Removal::kZero:
      return "zero";
    case Removal::kNext:
      return "next";
    case Removal::kMean:
      return "mean";
  }
  return "";
}

std::optional<Removal> removal_of(const std::string& name) {
  for (const Removal removal : {Removal::kZero, Removal::kNext, Removal::kMean}) {
    if (name == removal_name(removal)) return removal;
  }
  return std::nullopt;
}

std::string ExpertGroup::name() const {
  const char* kind = of == Of::kDecile ? "decile" : of == Of::kGroup ? "group" : "expert";
  return strprintf("%s %ld", kind, long(number));
}

std::string Intervention::name() const {
  switch (what) {
    case What::kExperts:
      return group.name();
    case What::kShared:
      return "shared expert";
    case What::kRouted:
      return "all routed experts";
    case What::kUniform:
      return "uniform router";
    case What::kTokenTable:
      return "token-id router";
  }
  return "";
}

std::string Intervention::key() const {
  std::string text = strprintf("layer %ld, %s", long(layer), name().c_str());
  if (what == What::kExperts) text += std::string(", ") + removal_name(removal);
  return text;
}

std::vector<int32_t> LayerLoads::by_load() const {
  std::vector<int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return counts[size_t(a)] > counts[size_t(b)]; });
  return ids;
}

double LayerLoads::share(std::span<const int32_t> experts) const {
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  int64_t these = 0;
  for (const int32_t e : experts) these += counts[size_t(e)];
  return all > 0 ? double(these) / double(all) : 0;
}

namespace {

void add_experts(std::vector<Intervention>& list, const DamagePlan& plan, const LayerLoads& loads,
                 std::vector<int32_t> experts, ExpertGroup group, int64_t top_k) {
  std::sort(experts.begin(), experts.end());
  const double share = loads.share(experts);
  for (const Removal removal : plan.removals) {
    const int64_t left = int64_t(loads.counts.size()) - int64_t(experts.size());
    if (removal == Removal::kNext && left < top_k) continue;
    list.push_back({.what = Intervention::What::kExperts,
                    .layer = loads.layer,
                    .removal = removal,
                    .experts = experts,
                    .group = group,
                    .share = share});
  }
}

void add_layer(std::vector<Intervention>& list, const DamagePlan& plan, const LayerLoads& loads,
               int64_t top_k, bool has_shared) {
  const std::vector<int32_t> order = loads.by_load();
  const auto count = int64_t(order.size());
  const int64_t groups = std::min(plan.groups, count / 2);
  using Of = ExpertGroup::Of;
  const Of of_load = groups == 10 ? Of::kDecile : Of::kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    const auto begin = order.begin() + g * count / groups;
    const auto end = order.begin() + (g + 1) * count / groups;
    add_experts(list, plan, loads, {begin, end}, {.of = of_load, .number = g + 1}, top_k);
  }
  std::vector<int32_t> single = plan.experts;
  const int64_t busiest = plan.busiest < 0 ? count : std::min(plan.busiest, count);
  single.insert(single.end(), order.begin(), order.begin() + busiest);
  std::vector<int32_t> seen;
  for (const int32_t e : single) {
    if (std::find(seen.begin(), seen.end(), e) != seen.end()) continue;
    seen.push_back(e);
    add_experts(list, plan, loads, {e}, {.of = Of::kExpert, .number = e}, top_k);
  }
  using What = Intervention::What;
  const auto add = [&](What what, double share) {
    list.push_back({.what = what, .layer = loads.layer, .share = share});
  };
  if (plan.routed) add(What::kRouted, 1);
  if (plan.shared && has_shared) add(What::kShared, 0);
  if (plan.routers) add(What::kUniform, 1);
  if (plan.routers) add(What::kTokenTable, 1);
}

}  // namespace

std::vector<Intervention> interventions(const DamagePlan& plan, std::span<const LayerLoads> loads,
                                        int64_t top_k, bool has_shared) {
  std::vector<Intervention> list;
  for (const int64_t layer : plan.layers) {
    const bool known = std::any_of(loads.begin(), loads.end(),
                                   [&](const LayerLoads& l) { return l.layer == layer; });
    if (known) continue;
    std::string all;
    for (const LayerLoads& l : loads) all += (all.empty() ? "" : ", ") + std::to_string(l.layer);
    throw UserError(strprintf("layer %ld has no experts", long(layer)), "MoE layers: " + all);
  }
  for (const LayerLoads& l : loads) {
    for (const int32_t e : plan.experts) {
      if (e >= 0 && size_t(e) < l.counts.size()) continue;
      throw UserError(strprintf("there is no expert %d", int(e)),
                      strprintf("experts are 0 to %zu", l.counts.size() - 1));
    }
    const bool wanted = plan.layers.empty() || std::find(plan.layers.begin(), plan.layers.end(),
                                                         l.layer) != plan.layers.end();
    if (wanted) add_layer(list, plan, l, top_k, has_shared);
  }
  return list;
}

}  // namespace assay
