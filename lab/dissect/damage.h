// What a part of a mixture is worth: the change of the held-out loss without it (`assay dissect
// damage`). Pure data and arithmetic; session/dissect.h measures.
//
//   damage = sum over counted targets of (nats with the change - nats without) / targets
//
// Its standard error takes sequences as the units that vary independently (a ratio estimator,
// Cochran, Sampling Techniques, 1977, section 6.3): with d_s the sum of the differences in sequence
// s, n_s its targets and S sequences,
//
//   se = sqrt(S / (S - 1) sum_s (d_s - damage n_s)^2) / sum_s n_s
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace assay {

// Of a sequence: the sum over its counted targets, and their number.
struct SequenceNats {
  double nats = 0;
  int64_t targets = 0;
};

struct Damage {
  double nats = 0;           // per target
  std::optional<double> se;  // absent for a single sequence
  int64_t targets = 0;
};
// Both of the same sequences.
Damage damage_of(std::span<const SequenceNats> changed, std::span<const SequenceNats> base);
// The loss itself.
Damage loss_of(std::span<const SequenceNats> nats);

// kZero: a token's choice stays, the expert contributes nothing. kNext: the expert cannot be
// chosen; the next best takes its place, with gates as of a model without it, except softmax gates
// that are not normalised, whose sum keeps it. kMean: the expert contributes its mean output over
// the held-out tokens that chose it.
enum class Removal { kZero, kNext, kMean };
const char* removal_name(Removal removal);
std::optional<Removal> removal_of(const std::string& name);

// Experts that are removed together.
struct ExpertGroup {
  enum class Of { kDecile, kGroup, kExpert } of = Of::kGroup;
  int64_t number = 0;        // from 1, the busiest first; of a single expert its id
  std::string name() const;  // "decile 1", "group 3", "expert 17"
};

// One change of one layer.
struct Intervention {
  enum class What {
    kExperts,     // `experts` are removed, by `removal`
    kShared,      // the shared expert contributes nothing
    kRouted,      // no routed expert contributes
    kUniform,     // the router is replaced by a fixed draw of K experts for each position
    kTokenTable,  // the router is replaced by a table by token id, made from the first half of the
                  // held-out sequences; measured on the second half
  } what = What::kExperts;
  int64_t layer = 0;
  Removal removal = Removal::kZero;
  std::vector<int32_t> experts = {};  // ascending
  ExpertGroup group = {};             // of the experts
  double share = 0;                   // of the layer's assignments that they take, on held-out text

  std::string name() const;  // "decile 1", "shared expert", "uniform router", ...
  std::string key() const;   // "layer 2, decile 1, zero": the same for the same change
};

// Experts of a layer by their load on held-out text.
struct LayerLoads {
  int64_t layer = 0;
  std::vector<int64_t> counts;           // (E) assignments
  std::vector<int64_t> first_use;        // (E) index of the first sequence that chose it; -1: none
  std::vector<int32_t> by_load() const;  // ids, busiest first; equal loads by id
  double share(std::span<const int32_t> experts) const;
};

struct DamagePlan {
  std::vector<Removal> removals = {Removal::kZero, Removal::kNext, Removal::kMean};
  int64_t groups = 10;                // of equally many experts, at least two, by load; 0: none
  int64_t busiest = 4;                // single experts, the busiest first; -1: all
  std::vector<int32_t> experts = {};  // single experts by id, in every layer
  bool shared = true, routed = true, routers = true;
  std::vector<int64_t> layers = {};  // empty: all
};
// In the order of the table. top_k: kNext is left out where fewer than K experts would remain.
std::vector<Intervention> interventions(const DamagePlan& plan, std::span<const LayerLoads> loads,
                                        int64_t top_k, bool has_shared);

struct DamageReport {
  std::string run, checkpoint, text_sha256;
  int64_t step = 0, experts = 0, top_k = 0, tokens = 0;
  Damage base;  // the loss itself, without any change
  std::vector<LayerLoads> loads;
  std::vector<Intervention> done;
  std::vector<Damage> damage;  // of `done`
  // The gates are softmax probabilities that are not normalised: with Removal::kNext their sum
  // keeps the removed experts.
  bool next_keeps_sum = false;
};
// In the folder of the run: damage_json() of the last `assay dissect damage` that ended.
constexpr const char* kDamageFile = "dissect/damage.json";
std::string damage_text(const DamageReport& report);
nlohmann::ordered_json damage_json(const DamageReport& report);

}  // namespace assay
