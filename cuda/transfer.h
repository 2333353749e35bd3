// Copies to, from and within the memory of an Exec: the host's, or a GPU's. On a GPU they are
// queued with the kernels on the stream and return at once; the host may read their results after
// wait().
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

// On a GPU in any direction; host memory that is not pinned is staged.
void copy_bytes(Exec on, void* to, const void* from, size_t bytes);
// Waits until all work queued on `on` is done. Throws if a kernel failed.
void wait(Exec on);
// The same behind one launch (gpu::Context::Launches::kWaiting): a failure begins with its name.
void wait_for_launch(Exec on, const std::string& name);

// Copies from.size() elements.
template <typename T, int Rank>
void copy(Exec on, const View<T, Rank>& to, const std::type_identity_t<View<const T, Rank>>& from) {
  copy_bytes(on, to.data, from.data, from.bytes());
}

}  // namespace assay
