// Sections optimizer, schedule and precision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/choice.h"
#include "engine/config/field_check.h"

namespace assay {

// muon: Muon for the matrices inside the blocks, AdamW for the rest (engine/optimizer.h).
enum class OptimizerKind { kAdamW, kMuon };
template <>
struct Choice<OptimizerKind> {
  static constexpr const char* kNames[] = {"adamw", "muon"};
};

// The factor of Muon's learning rate, from the shape of a matrix.
enum class MuonAdjust { kMatchRmsAdamW, kOriginal };
template <>
struct Choice<MuonAdjust> {
  static constexpr const char* kNames[] = {"match_rms_adamw", "original"};
};

struct MuonConfig {
  std::optional<double> lr;
  double momentum = 0.95;
  bool nesterov = true;
  int64_t steps = 5;
  std::optional<double> weight_decay;
  MuonAdjust adjust = MuonAdjust::kMatchRmsAdamW;
};

template <typename V>
void visit(V& v, MuonConfig& c) {
  v("lr", c.lr, "peak learning rate before adjust; absent = optimizer.lr, and expert_lr if given",
    positive());
  v("momentum", c.momentum, "decay of the mean of gradients", between(0, 0.999999));
  v("nesterov", c.nesterov, "orthogonalise a mean that counts the newest gradient once more",
    any());
  v("steps", c.steps, "Newton-Schulz iterations", between(1, 20));
  v("weight_decay", c.weight_decay, "decoupled decay; absent = optimizer.weight_decay",
    not_negative());
  v("adjust", c.adjust,
    "factor of lr: match_rms_adamw = 0.2 sqrt(max(rows, columns)), as large as AdamW's steps; "
    "original = sqrt(max(1, rows / columns))",
    any());
}

// bf16: the bf16 weights are the masters, and their moments are bf16 (ops/adamw_bf16.h).
enum class StateFormat { kFp32, kBf16 };
template <>
struct Choice<StateFormat> {
  static constexpr const char* kNames[] = {"fp32", "bf16"};
};

enum class DecayShape { kLinear, kCosine };
template <>
struct Choice<DecayShape> {
  static constexpr const char* kNames[] = {"linear", "cosine"};
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  StateFormat state = StateFormat::kFp32;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::optional<double> router_lr;
  std::optional<double> expert_lr;
  std::optional<double> expert_beta2;
  std::optional<MuonConfig> muon;
};

template <typename V>
void visit(V& v, OptimizerConfig& c) {
  v("kind", c.kind, "optimizer", any());
  v("state", c.state,
    "masters and moments of matrices: fp32, or bf16 with stochastic rounding (10 instead of 18 "
    "bytes per parameter); norms stay fp32",
    any());
  v("lr", c.lr, "peak learning rate", positive());
  v("beta1", c.beta1, "first-moment decay", between(0, 0.999999));
  v("beta2", c.beta2, "second-moment decay", between(0, 0.9999999));
  v("eps", c.eps, "added to the root of the second moment", positive());
  v("weight_decay", c.weight_decay, "decoupled decay of attention, FFN and expert weights",
    not_negative());
  v("clip", c.clip, "largest global gradient norm; 0 = no clipping", not_negative());
  v("router_lr", c.router_lr, "peak learning rate of routers; absent = lr", positive());
  v("expert_lr", c.expert_lr, "peak learning rate of routed experts; absent = lr", positive());
  v("expert_beta2", c.expert_beta2, "second-moment decay of routed experts; absent = beta2",
    between(0, 0.9999999));
  v.section("muon", c.muon, "of kind muon: how it steps the matrices inside the blocks");
}

struct ScheduleConfig {
  int64_t warmup = 0;
  int64_t warmdown = 0;
  std::optional<double> warmup_fraction = {};
  std::optional<double> warmdown_fraction = {};
  DecayShape decay = DecayShape::kLinear;
  double floor = 0.0;
};

template <typename V>
void visit(V& v, ScheduleConfig& c) {
  v("warmup", c.warmup, "steps of linear warm-up", by_schedule(not_negative()));
  v("warmdown", c.warmdown, "steps of decay at the end; 0 = none, or with cosine all after warmup",
    by_schedule(not_negative()));
  v("warmup_fraction", c.warmup_fraction, "instead of warmup: share of the run's steps",
    by_schedule(between(0, 1)));
  v("warmdown_fraction", c.warmdown_fraction, "instead of warmdown: share of the run's steps",
    by_schedule(between(0, 1)));
  v("decay", c.decay, "linear ends at lr / warmdown, cosine at floor", by_schedule(any()));
  v("floor", c.floor,
    "what optimizer.lr ends at by the cosine; a group's own rate ends at the same share of itself",
    by_schedule(not_negative()));
}

enum class ProductsMode { kAuto, kSimulated, kNative };
template <>
struct Choice<ProductsMode> {
  static constexpr const char* kNames[] = {"auto", "decoded", "native"};
};

// Every value of precision.recipe; models/linear/precision.cpp says what they mean.
std::vector<std::string> recipe_names();

struct PrecisionConfig {
  std::string recipe = "auto";
  std::vector<std::string> override_;
  int64_t bf16_first_layers = 0;
  int64_t bf16_last_layers = -1;
  double bf16_tail = 0.0;
  ProductsMode products = ProductsMode::kAuto;
  bool operator==(const PrecisionConfig&) const = default;
};

template <typename V>
void visit(V& v, PrecisionConfig& c) {
  v("recipe", c.recipe, "auto = bf16 on a GPU and on a CPU with fast bf16 products, else fp32",
    free_on_resume(one_of(recipe_names())));
  v("override", c.override_,
    "formats of operands that differ from the recipe's, e.g. [experts.wgrad=bf16, weight=nvfp4]",
    free_on_resume(any()));
  v("bf16_first_layers", c.bf16_first_layers, "number of first blocks with all products in bf16",
    free_on_resume(not_negative()));
  v("bf16_last_layers", c.bf16_last_layers,
    "number of last blocks with all products in bf16; -1 = the recipe's: nvfp4 15% of the layers, "
    "others none",
    free_on_resume(at_least(-1)));
  v("bf16_tail", c.bf16_tail, "share of the steps, at the end, with all products in bf16",
    free_on_resume(between(0, 1)));
  v("products", c.products,
    "decoded = simulated in bf16, the same on every machine; native = in the operands' own formats "
    "on a GPU that has them, else simulated; auto = native where it was measured to be faster "
    "(compute capability 9.0)",
    free_on_resume(any()));
}

}  // namespace assay
