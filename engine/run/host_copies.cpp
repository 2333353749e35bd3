#include "engine/run/host_copies.h"

#include "base/math.h"
#include "cuda/transfer.h"

namespace assay {

template <typename Piece>
HostCopies<Piece>::HostCopies(Exec on, std::vector<Piece> pieces)
    : on_(on), pieces_(std::move(pieces)) {
  if (on.gpu == nullptr) return;
  const auto padded = [](const Piece& p) { return round_up(static_cast<size_t>(p.bytes()), 64); };
  size_t bytes = 0;
  for (const Piece& p : pieces_) bytes += padded(p);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* next = memory_.get();
  for (Piece& p : pieces_) {
    originals_.push_back(p.data);
    p.data = next;
    next += padded(p);
  }
}

template <typename Piece>
void HostCopies<Piece>::download() {
  for (size_t i = 0; i < originals_.size(); ++i) {
    copy_bytes(on_, pieces_[i].data, originals_[i], static_cast<size_t>(pieces_[i].bytes()));
  }
  wait(on_);
}

template <typename Piece>
void HostCopies<Piece>::upload() {
  for (size_t i = 0; i < originals_.size(); ++i) {
    copy_bytes(on_, originals_[i], pieces_[i].data, static_cast<size_t>(pieces_[i].bytes()));
  }
  wait(on_);
}

template class HostCopies<TensorRef>;
template class HostCopies<Slice>;

}  // namespace assay
