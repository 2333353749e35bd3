#include "interop/shard_writer.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "engine/run/safetensors.h"

namespace assay {
namespace {

// The tensors [begin, end) of the list.
struct WeightShard {
  size_t begin, end;
};

std::vector<WeightShard> cut(const std::vector<PlannedTensor>& tensors, int64_t shard_bytes) {
  std::vector<WeightShard> shards;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (shards.empty() || bytes + tensors[i].bytes() > shard_bytes) {
      shards.push_back({i, i});
      bytes = 0;
    }
    shards.back().end = i + 1;
    bytes += tensors[i].bytes();
  }
  return shards;
}

void write_shard(const std::string& path, const std::vector<PlannedTensor>& tensors,
                 WeightShard shard, const FillTensor& fill) {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<TensorRef> refs;
  std::vector<float> values;
  for (size_t i = shard.begin; i < shard.end; ++i) {
    const PlannedTensor& t = tensors[i];
    memory.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(t.bytes())));
    refs.push_back(
        {.name = t.name, .dtype = t.dtype, .shape = t.shape, .data = memory.back().get()});
    if (t.dtype == DType::kF32) {
      fill(i, static_cast<float*>(refs.back().data));
      continue;
    }
    values.resize(static_cast<size_t>(t.size()));
    fill(i, values.data());
    bf16* rounded = static_cast<bf16*>(refs.back().data);
    for (size_t k = 0; k < values.size(); ++k) round_to(rounded[k], values[k]);
  }
  write_safetensors(path, refs, {{"format", "pt"}});
}

}  // namespace

int64_t PlannedTensor::size() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

WrittenShards write_shards(const std::string& folder, const std::vector<PlannedTensor>& tensors,
                           int64_t shard_bytes, const FillTensor& fill) {
  const std::vector<WeightShard> shards = cut(tensors, shard_bytes);
  nlohmann::ordered_json::object_t places;  // emplace_back() does not search all names
  WrittenShards written;
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : strprintf("model-%05zu-of-%05zu.safetensors", s + 1, shards.size());
    write_shard(folder + "/" + name, tensors, shards[s], fill);
    written.files.push_back(name);
    for (size_t i = shards[s].begin; i < shards[s].end; ++i) {
      places.emplace_back(tensors[i].name, name);
      written.bytes += tensors[i].bytes();
    }
  }
  if (shards.size() > 1) {
    nlohmann::ordered_json index;
    index["metadata"]["total_size"] = written.bytes;
    index["weight_map"] = std::move(places);
    write_file_atomic(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
  }
  return written;
}

}  // namespace assay
