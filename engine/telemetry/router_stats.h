// Load measures of one MoE layer, as pure functions of the assignment counts. Formulas and names:
// docs/numerics.md (router telemetry). A normalised measure whose ceiling is 0 (E = 1, K = E) is
// absent.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/view.h"

namespace assay {

struct RouterStats {
  double assignments = 0;    // A
  double cv = 0;             // percent: 100 std_pop(load) / mean(load)
  double max_load = 0;       // largest load, as a share of A
  double entropy = 0;        // nats
  double e_eff = 0;          // exp(entropy)
  double participation = 0;  // 1 / sum load^2
  int64_t active = 0;        // experts with an assignment
  double gini = 0;
  double cv_floor = 0;  // percent: expected cv of uniform random routing to K distinct experts

  double cv_ceiling = 0;        // 100 sqrt((E - K) / K)
  double max_load_ceiling = 0;  // 1 / K
  double entropy_ceiling = 0;   // ln E

  std::optional<double> cv_norm;       // cv / ceiling
  double max_load_norm = 0;            // K max_load
  std::optional<double> entropy_norm;  // entropy / ln E
  double e_eff_norm = 0;               // / E
  double participation_norm = 0;       // / E
  double active_norm = 0;              // / E
};

// counts (E), 1 <= top_k <= E. Without assignments all measures are 0.
RouterStats router_stats(View<const int64_t, 1> counts, int64_t top_k);

// gate_entropy / ln K; absent if K = 1.
std::optional<double> gate_entropy_norm(double gate_entropy, int64_t top_k);
double bias_range(View<const float, 1> bias);  // max b - min b; 0 for an empty bias

// What sampling alone gives where every token draws K distinct ones of E experts, all alike: the
// share of the experts that get none of A assignments, and the entropy / ln E and Gini coefficient
// to expect. The Gini coefficient is also the share of the assignments in which two such draws
// differ. Even loads (0, 1, 0) without assignments, or if K = E or K is unknown (0).
struct UniformRouting {
  double dead_share = 0, entropy_norm = 1, gini = 0;
};
UniformRouting uniform_routing(int64_t experts, int64_t top_k, double assignments);
// The K max_load to expect of the same routing, within 2%; K/E without assignments.
double uniform_max_load_norm(int64_t experts, int64_t top_k, double assignments);

// Mean share of a token's experts in `now` that it also had in `before`. Both (N, K), ids distinct
// in a row.
double router_overlap(View<const int32_t, 2> before, View<const int32_t, 2> now);

// A layer saturates at the first logged step whose K max_load is at least this: 0.9, or half of the
// way from even loads, K/E, to the ceiling 1 where that is more. Infinity if K = E: loads are even.
// Without E (0) 0.9.
double saturation_limit(int64_t experts, int64_t top_k);

// Counts experts without an assignment in the last W logged steps. Call add() with the counts of
// each logged step.
class DeadFor {
 public:
  DeadFor(int64_t experts, int64_t window);
  void add(View<const int64_t, 1> counts);
  std::optional<int64_t> dead() const;  // absent until W steps were added
 private:
  int64_t window_, logged_ = 0;
  std::vector<int64_t> last_;  // logged step of the last assignment, from 1; 0 = never
};

}  // namespace assay
