#include "models/audit/routed_scale.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "models/parameters/table.h"

namespace assay {
namespace {

// The standard deviation with which a tensor of the block begins.
double begins_with(const ModelConfig& model, int64_t layer, const char* tensor) {
  const std::vector<ParameterSpec> table = parameter_table(model);
  const std::string name = strprintf("blocks.%ld.%s", long(layer), tensor);
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const ParameterSpec& spec) { return spec.name == name; });
  CHECK(found != table.end(), "the model has no %s", name.c_str());
  return found->std;
}

// The standard deviation of what a row with this one makes of a normalised token.
double of_token(const ModelConfig& model, double row) {
  return row * std::sqrt(double(model.hidden));
}

// Mean square of a hidden unit silu(g) u, where g and u are independent of this deviation.
double hidden_square(double deviation) {
  constexpr double kStep = 0.05;
  constexpr int kSteps = 200;  // to 10 standard deviations
  double sum = 0, weights = 0;
  for (int i = -kSteps; i <= kSteps; ++i) {
    const double z = kStep * i, weight = std::exp(-z * z / 2);
    const double gate = deviation * z, silu = gate / (1 + std::exp(-gate));
    sum += weight * silu * silu;
    weights += weight;
  }
  return deviation * deviation * sum / weights;
}

// The expectation of the i-th largest (from 0) of n standard normal values, by Blom's quantile.
double largest_of(int64_t n, int64_t i) {
  constexpr int kHalvings = 50;
  const double below = (double(n - i) - 0.375) / (double(n) + 0.25);
  double low = -9, high = 9;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < below ? low : high) = middle;
  }
  return (low + high) / 2;
}

double chosen_sigmoid(const MoeConfig& moe, double deviation) {
  double squares = 0;
  for (int64_t i = 0; i < moe.top_k; ++i) {
    const double logit = moe.router.route_scale * deviation * largest_of(moe.experts, i);
    const double score = 1 / (1 + std::exp(-logit));
    squares += score * score;
  }
  return std::sqrt(squares / double(moe.top_k));
}

double chosen_softmax(const MoeConfig& moe, double deviation) {
  const double largest = largest_of(moe.experts, 0);
  double squares = 0, all = 0;
  for (int64_t i = 0; i < moe.experts; ++i) {
    const double score = std::exp(deviation * (largest_of(moe.experts, i) - largest));
    all += score;
    if (i < moe.top_k) squares += score * score;
  }
  return std::sqrt(squares / double(moe.top_k)) / all;
}

// RMS of the gates of a block with gate_scale 1.
double gate_size(const ModelConfig& model, int64_t layer) {
  const MoeConfig& moe = *model.moe;
  if (moe.router.normalize_gates) return 1 / double(moe.top_k);
  const double deviation = of_token(model, begins_with(model, layer, "moe.router"));
  return moe.router.score == RouterScore::kSigmoid ? chosen_sigmoid(moe, deviation)
                                                   : chosen_softmax(moe, deviation);
}

// RMS of the hidden units of a block's routed experts, over those of a dense FFN.
double hidden_size(const ModelConfig& model, int64_t layer) {
  ModelConfig dense = model;
  dense.moe.reset();
  const double own = begins_with(model, layer, "moe.gate_up");
  const double others = begins_with(dense, layer, "ffn.gate_up");
  return std::sqrt(hidden_square(of_token(model, own)) / hidden_square(of_token(model, others)));
}

double scale_of_block(const ModelConfig& model, int64_t layer) {
  const MoeConfig& moe = *model.moe;
  const double gate = moe.router.gate_scale * gate_size(model, layer);
  const double size = gate * hidden_size(model, layer);
  if (moe.shared == 0) return size;
  const double routed = double(moe.top_k), shared = double(moe.shared);
  return std::sqrt((routed * size * size + shared) / (routed + shared));
}

int64_t first_with_experts(const ModelConfig& model) {
  return model.layers - moe_blocks(model);
}

}  // namespace

double gate_divisor(const ModelConfig& model) {
  if (moe_blocks(model) == 0) return 1;
  if (model.moe->router.normalize_gates) return double(model.moe->top_k);
  return 1 / std::sqrt(gate_size(model, first_with_experts(model)) *
                       gate_size(model, model.layers - 1));
}

BranchScale branch_scale(const ModelConfig& model) {
  if (moe_blocks(model) == 0) return {};
  return {.first = scale_of_block(model, first_with_experts(model)),
          .last = scale_of_block(model, model.layers - 1)};
}

}  // namespace assay
