// What the engine knows of a parameter: name, shape, and the rules that apply to it.
// models/parameters/table.h makes the list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

enum class Init { kOne, kZero, kNormal };
// The purpose of a tensor. A buffer is in checkpoints, but neither trained nor counted.
enum class Role {
  kEmbedding,
  kHead,
  kNorm,
  kAttention,
  kDenseFfn,
  kRouter,
  kRoutedExpert,
  kSharedExpert,
  kBuffer
};
// The optimizer settings of a parameter: kDecay and kNoDecay share the main learning rate, routers
// (no weight decay) and routed experts have their own.
enum class ParameterGroup { kDecay, kNoDecay, kRouter, kExperts };

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  Role role;
  ParameterGroup group;
  Init init;
  double std;  // standard deviation of Init::kNormal, else 0
  // Several matrices stacked in the rows: their numbers of rows, e.g. of q, k and v. Empty: one.
  std::vector<int64_t> parts = {};
  // Of a tensor that ranks share: they have equal shares of its rows (first dimension), `shape` is
  // one share, and this rank has share number `share` of `shares`.
  int64_t shares = 1, share = 0;

  bool shared_out() const { return shares > 1; }
  std::vector<int64_t> whole_shape() const;
  // The number of this share's first element in the whole tensor.
  int64_t first_element() const { return share * size(); }

  bool trained() const { return role != Role::kBuffer; }
  // Multiplied by products, so that recipes with bf16 products have a bf16 copy.
  bool is_matrix() const { return trained() && shape.size() >= 2; }
  // A matrix inside a block, between activations: what Muon is for.
  bool is_hidden_matrix() const;
  // Number of elements of the share. Throws UserError if it exceeds 63 bits.
  int64_t size() const;
};

}  // namespace assay
