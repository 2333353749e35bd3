// The safetensors format: 8 bytes little-endian header length, a JSON header, the tensors' bytes.
//
//   {"__metadata__": {key: text}, "blocks.0.qkv": {"dtype": "BF16", "shape": [768, 256], "data_offsets": [0, 393216]}}
//
// Offsets count from the end of the header. What we read is checked before it is used: a damaged or
// hostile file is a UserError that names the file and, where there is one, the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/tensor_ref.h"

namespace assay {

struct WrittenFile {
  int64_t bytes = 0;
  std::string sha256;
};

// In the order given; complete under `path`, or an error and what was there before.
WrittenFile write_safetensors(const std::string& path, const std::vector<TensorRef>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;  // as spelled in the file; types we do not compute with are listed too
    std::vector<int64_t> shape;
    int64_t begin = 0;  // in the file
    int64_t bytes = 0;
  };

  // Reads and checks the header; the tensors stay on the disk.
  explicit SafetensorsFile(std::string path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  const std::vector<Entry>& entries() const { return entries_; }  // by position in the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;

  // Fills into.data. UserError when the file has no such tensor, or another type or shape.
  void read(const TensorRef& into) const;
  // `bytes` of an entry, from its byte `offset` on.
  void read_bytes(const Entry& entry, int64_t offset, void* into, int64_t bytes) const;

 private:
  std::string path_;
  int file_ = -1;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, size_t> index_;
};

// "element 40 of embed.weight is inf": the first value of the first tensor that is not finite; ""
// when all are. One pass over the host's memory.
std::string first_not_finite(const std::vector<TensorRef>& tensors);

// Every tensor of the list, and the file must hold no other.
void read_safetensors(const std::string& path, const std::vector<TensorRef>& tensors);

}  // namespace assay
