// What the engine knows of a parameter: name, shape, and which rules apply to it.
// models/parameters/table.h makes the list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

enum class Init { kOne, kZero, kNormal };
// What a tensor is for. A buffer is in checkpoints, but neither trained nor counted.
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
// Which optimizer settings apply: `decay` and `no_decay` share the main learning rate, routers and
// routed experts have their own.
enum class Group { kDecay, kNoDecay, kRouter, kExperts };

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  Role role;
  Group group;
  Init init;
  double std;  // of Init::kNormal, else 0

  bool trained() const { return role != Role::kBuffer; }
  // UserError when the product does not fit 63 bits.
  int64_t size() const;
};

}  // namespace assay
