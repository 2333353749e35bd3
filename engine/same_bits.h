// What every rank computes for itself and must have in common, and how a difference is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model.h"

namespace assay {

// Hashes after a step, of one rank.
struct RankBits {
  uint64_t parameters = 0;
  uint64_t bias = 0;  // of the routers' selection bias, bias_hash()
};

// Of all layers; a bias that moves to another expert or layer changes it.
uint64_t bias_hash(const std::vector<RouterLayerState>& layers);

// "rank 2 has other router biases than rank 0: hash 1234abcd, not 5678abcd": the first rank that
// differs from rank 0; "" if none does. Other parameters come first: they explain other biases.
std::string different_bits(const std::vector<RankBits>& ranks);

}  // namespace assay
