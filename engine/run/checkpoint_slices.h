// The tensors of a checkpoint in slices: contiguous elements of tensors that all ranks name alike.
// A file of format 2 has, beside whole tensors, entries
//
//   "blocks.3.moe.gate_up#131072": {"dtype": "F32", "shape": [16384], ...}
//   __metadata__: {"slice:blocks.3.moe.gate_up#131072": "[8,1024,256]"}
//
// the elements [131072, 147456) of a tensor of shape (8, 1024, 256). So any number of ranks can
// read what any other number wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/exec.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/safetensors.h"
#include "engine/tensor_ref.h"

namespace assay {

std::vector<Slice> whole_slices(const std::vector<TensorRef>& tensors);

// Writes the slices in the given order; one of a whole tensor gets the tensor's name, one without
// elements is left out. Atomic, and with `read`, as write_safetensors(): then TensorRef::data is
// Slice::data, and elements are counted from there.
WrittenFile write_slices(const std::string& path, std::span<const Slice> slices,
                         const ReadElements& read = {});

class CheckpointSlices {
 public:
  // Reads the headers of a checkpoint's files, of either format. UserError unless every tensor is
  // there once, with one type and shape.
  CheckpointSlices(const std::string& folder, TensorKind kind);
  // The same for files that have no manifest yet. `order`: names that come first in tensors(); one
  // that no file has is an error.
  CheckpointSlices(const std::string& folder, const std::vector<std::string>& files,
                   const std::vector<std::string>& order);

  // In the order of format 1; data is nullptr.
  const std::vector<TensorRef>& tensors() const { return tensors_; }
  const TensorRef* find(const std::string& name) const;
  // The files, for messages: "FOLDER/model.safetensors".
  const std::string& where() const { return where_; }

  // UserError unless the checkpoint has this tensor with this type and shape.
  void require(const TensorRef& tensor) const;
  // Reads elements [first, first + count) of a tensor that is there.
  void read(const std::string& name, int64_t first, int64_t count, void* into) const;

 private:
  struct Piece {
    int64_t first = 0, count = 0;
    size_t file = 0;  // of files_
    const SafetensorsFile::Entry* entry = nullptr;
  };
  void open(const std::string& folder, const std::vector<std::string>& files);
  void add(size_t file, const SafetensorsFile::Entry& entry);
  void require_covered() const;
  // The tensors of `order` first; returns how many those are.
  size_t sort(const std::vector<std::string>& order);

  std::string where_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorRef> tensors_;
  std::vector<std::vector<Piece>> pieces_;  // of each tensor, by first element
  std::unordered_map<std::string, size_t> index_;
};

// Reads the slices, which are in the memory of `on`; into a GPU's through one piece of the host's.
// Returns first_not_finite() of them. others: what becomes of tensors that none of them names;
// kRefused: UserError.
enum class Others { kIgnored, kRefused };
std::string load_slices(const std::string& folder, TensorKind kind, std::span<const Slice> slices,
                        Others others = Others::kIgnored, Exec on = {});
// Fills whole tensors, as load_slices(). UserError if the checkpoint holds another tensor.
std::string load_tensors(const std::string& folder, TensorKind kind,
                         const std::vector<TensorRef>& tensors, Exec on = {});

}  // namespace assay
