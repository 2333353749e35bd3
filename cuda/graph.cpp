#include "cuda/graph.h"

namespace assay::gpu {

Graph Graph::capture(const Context& on, CallRef calls) {
  return Graph(Recording(on.graphs->record(on, calls), on.graphs->release));
}

void Graph::replay(const Context& on) const {
  on.graphs->replay(on, recording_.get());
}

bool records(Exec on) {
  return on.gpu != nullptr && on.gpu->launches == Context::Launches::kQueued &&
         (on.profile == nullptr || on.profile->by_events() != nullptr);
}

}  // namespace assay::gpu
