// Tensors, or slices of tensors, in the host's memory, for checkpoints: on a GPU copies, which take
// as much memory as they; on the CPU they themselves.
#pragma once

#include <memory>
#include <vector>

#include "cuda/exec.h"
#include "engine/tensor_ref.h"

namespace assay {

// Piece: TensorRef or Slice.
template <typename Piece>
class HostCopies {
 public:
  HostCopies(Exec on, std::vector<Piece> pieces);

  const std::vector<Piece>& pieces() const { return pieces_; }
  void download();  // originals to copies; waits
  void upload();    // copies to originals; waits

 private:
  Exec on_;
  std::vector<Piece> pieces_;
  std::vector<void*> originals_;  // device addresses of pieces_; empty on the CPU
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace assay
