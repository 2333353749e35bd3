// Tensors in the host's memory, for checkpoints: on a GPU copies, which take as much memory as the
// tensors; on the CPU the tensors themselves.
#pragma once

#include <memory>
#include <vector>

#include "cuda/exec.h"
#include "engine/tensor_ref.h"

namespace assay {

class HostCopies {
 public:
  HostCopies(Exec on, std::vector<TensorRef> tensors);

  const std::vector<TensorRef>& tensors() const { return tensors_; }
  void download();  // tensors to copies; waits
  void upload();    // copies to tensors; waits

 private:
  Exec on_;
  std::vector<TensorRef> tensors_;
  std::vector<void*> originals_;  // device addresses of tensors_; empty on the CPU
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace assay
