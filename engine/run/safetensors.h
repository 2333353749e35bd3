// The safetensors format: 8 bytes little-endian header length, a JSON header, the tensors' bytes.
//
//   {"__metadata__": {key: text},
//    "blocks.0.qkv": {"dtype": "BF16", "shape": [768, 256], "data_offsets": [0, 393216]}}
//
// Offsets count from the end of the header. Input is checked before use: a damaged or hostile file
// is a UserError that names the file and, if possible, the tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/tensor_ref.h"

namespace assay {

struct WrittenFile {
  int64_t bytes = 0;
  std::string sha256;
};

// Tensors that the host cannot read or write where they are pass through its memory in pieces of at
// most this size.
inline constexpr int64_t kTensorPieceBytes = 1 << 22;

// Reads `count` elements of a tensor, from element `first` on.
using ReadElements =
    std::function<void(const TensorRef& tensor, int64_t first, int64_t count, void* into)>;

// Writes the tensors in the given order. Atomic: after an error the old file, if any, is unchanged.
// With `read` the elements come from it, in pieces; TensorRef::data is used by `read` alone.
WrittenFile write_safetensors(const std::string& path, const std::vector<TensorRef>& tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              const ReadElements& read = {});
// What write_safetensors() would return, without a file.
WrittenFile hash_safetensors(const std::vector<TensorRef>& tensors,
                             const std::map<std::string, std::string>& metadata = {},
                             const ReadElements& read = {});

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string dtype;  // as spelled in the file; may be a type that DType lacks
    std::vector<int64_t> shape;
    int64_t begin = 0;  // offset in the file
    int64_t bytes = 0;
  };

  // Reads and checks the header only.
  explicit SafetensorsFile(std::string path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  ~SafetensorsFile();

  const std::vector<Entry>& entries() const { return entries_; }  // by position in the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;

  // Fills into.data. Throws UserError if the file has no such tensor, or another type or shape.
  void read(const TensorRef& into) const;
  // Reads `bytes` bytes of an entry from its byte `offset` on.
  void read_bytes(const Entry& entry, int64_t offset, void* into, int64_t bytes) const;

 private:
  std::string path_;
  int file_ = -1;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, size_t> index_;
};

// "element 40 of embed.weight is inf" for the first element that is not finite; "" if there is
// none. The tensors are in the host's memory.
std::string first_not_finite(const std::vector<TensorRef>& tensors);
// The same of `count` elements of a tensor, from element `first` on: those at `values`.
std::string first_not_finite(const TensorRef& tensor, int64_t first, int64_t count,
                             const void* values);

// Throws UserError if the tensor that `where` holds has another type or shape than `into`.
void require_like(const std::string& where, const std::string& dtype,
                  const std::vector<int64_t>& shape, const TensorRef& into);
[[noreturn]] void throw_no_tensor(const std::string& where, const std::string& name);

}  // namespace assay
