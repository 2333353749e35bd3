// Tensors as files see them: themselves where they are in the host's memory, else copies there. For
// checkpoints; it holds as much memory as the tensors do.
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
  void download();  // copies hold what the tensors hold
  void upload();    // and the other way round

 private:
  Exec on_;
  std::vector<TensorRef> tensors_;
  std::vector<void*> originals_;  // of tensors_; empty on the CPU
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace assay
