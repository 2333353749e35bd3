#include "cuda/transfer.h"

#include <cstring>

#include "cuda/context.h"

namespace assay {

void copy_bytes(Exec on, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (on.gpu) return on.gpu->memory->copy(*on.gpu, to, from, bytes);
  std::memcpy(to, from, bytes);
}

void wait(Exec on) {
  if (on.gpu) on.gpu->memory->wait(*on.gpu);
}

}  // namespace assay
