// Writes tensors into model.safetensors, or, if they exceed one shard, into
// model-00001-of-0000N.safetensors and an index. One shard at a time is in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/tensor_ref.h"

namespace assay {

struct PlannedTensor {
  std::string name;
  DType dtype;  // F32 or BF16
  std::vector<int64_t> shape;

  int64_t size() const;
  int64_t bytes() const { return size() * dtype_bytes(dtype); }
};

struct WrittenShards {
  std::vector<std::string> files;  // names, without the index
  int64_t bytes = 0;               // of tensors
};

// fill(i, out) writes the values of tensor i as float; they are rounded to its type. A tensor
// larger than a shard has a shard of its own.
using FillTensor = std::function<void(size_t, float*)>;
WrittenShards write_shards(const std::string& folder, const std::vector<PlannedTensor>& tensors,
                           int64_t shard_bytes, const FillTensor& fill);

}  // namespace assay
