// Copies from, to and where an op runs: the host's memory, or a GPU's. On a GPU they join the
// kernels on the stream and return at once; what the host reads is there after wait().
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

// On a GPU in any direction; a host side that is not pinned is staged.
void copy_bytes(Exec on, void* to, const void* from, size_t bytes);
// Until all that `on` was given is done. Throws what a kernel did wrong.
void wait(Exec on);

// As many elements as `from` has.
template <typename T, int Rank>
void copy(Exec on, const View<T, Rank>& to, const std::type_identity_t<View<const T, Rank>>& from) {
  copy_bytes(on, to.data, from.data, from.bytes());
}

}  // namespace assay
