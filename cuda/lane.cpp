#include "cuda/lane.h"

#include "base/check.h"

namespace assay {

void follow(Exec later, Exec earlier) {
  CHECK((later.gpu == nullptr) == (earlier.gpu == nullptr), "%s",
        "follow: one of the two is a GPU's");
  if (later.gpu == nullptr || later.gpu->stream == earlier.gpu->stream) return;
  later.gpu->streams->follow(*later.gpu, *earlier.gpu);
}

Lane::Lane(Exec main) : exec_{.threads = main.threads} {
  if (main.gpu == nullptr) return;
  context_ = *main.gpu;
  context_.stream = context_.streams->open();
  exec_.gpu = &context_;
}

Lane::~Lane() {
  if (exec_.gpu != nullptr) context_.streams->close(context_.stream);
}

}  // namespace assay
