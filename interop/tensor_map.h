// Maps every tensor of a checkpoint in the Hugging Face format to a part of ours; export and import
// both use this list.
//
// Weights are (out, in) in both, and both rotate half-split pairs, so a tensor of theirs is a run
// of consecutive elements of one of ours, times a gain: q, k and v are the rows of attn.qkv, gate
// and up those of ffn.gate_up, an expert is a part of its layer's stack.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "interop/hf_architecture.h"

namespace assay {

struct MappedTensor {
  std::string name;  // theirs
  std::vector<int64_t> shape;
  std::string ours;
  int64_t begin = 0;                                         // their first element in ours
  double gain = 1;                                           // theirs = ours * gain
  enum class Type { kAsModel, kF32 } type = Type::kAsModel;  // kF32: always exported as F32

  int64_t size() const;
};

// In the order of the forward pass.
std::vector<MappedTensor> tensor_map(const ModelConfig& model, Family family);

// The first trained parameter of the model of which the map lacks an element; "" if it covers all.
std::string uncovered_parameter(const ModelConfig& model, const std::vector<MappedTensor>& map);

// The size of tensor_map(), without building it.
int64_t mapped_tensors(const ModelConfig& model, Family family);

}  // namespace assay
