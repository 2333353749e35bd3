// One step of a loader, with all its micro-batches joined, for comparisons.
#pragma once

#include <cstdint>
#include <vector>

#include "data/loader.h"

namespace assay {

struct LoaderStep {
  std::vector<int32_t> token, target;
  bool operator==(const LoaderStep&) const = default;
};

inline LoaderStep read_step(Loader& loader) {
  LoaderStep step;
  loader.next_step();
  for (int i = 0; i < loader.micro_batches(); ++i) {
    const Batch batch = loader.micro(i);
    step.token.insert(step.token.end(), batch.token.data, batch.token.data + batch.token.size());
    step.target.insert(step.target.end(), batch.target.data,
                       batch.target.data + batch.target.size());
  }
  return step;
}

}  // namespace assay
