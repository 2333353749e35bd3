#include "engine/run/host_copies.h"

#include "base/math.h"
#include "cuda/transfer.h"

namespace assay {

HostCopies::HostCopies(Exec on, std::vector<TensorRef> tensors)
    : on_(on), tensors_(std::move(tensors)) {
  if (on.gpu == nullptr) return;
  const auto padded = [](const TensorRef& t) {
    return round_up(static_cast<size_t>(t.bytes()), 64);
  };
  size_t bytes = 0;
  for (const TensorRef& t : tensors_) bytes += padded(t);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* next = memory_.get();
  for (TensorRef& t : tensors_) {
    originals_.push_back(t.data);
    t.data = next;
    next += padded(t);
  }
}

void HostCopies::download() {
  for (size_t i = 0; i < originals_.size(); ++i) {
    copy_bytes(on_, tensors_[i].data, originals_[i], static_cast<size_t>(tensors_[i].bytes()));
  }
  wait(on_);
}

void HostCopies::upload() {
  for (size_t i = 0; i < originals_.size(); ++i) {
    copy_bytes(on_, originals_[i], tensors_[i].data, static_cast<size_t>(tensors_[i].bytes()));
  }
  wait(on_);
}

}  // namespace assay
