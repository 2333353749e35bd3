// A second stream beside the main one of an Exec, for communication. The two run at the same time
// but for the edges that follow() makes: without them nothing orders a lane and the main stream. On
// the CPU a lane's call is done when it returns.
#pragma once

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay {

// What is queued on `later` from now on waits for what is queued on `earlier` so far. The host does
// not wait. While a graph of one of them is recorded, the edge is recorded with it: a lane enters a
// recording when it follows the recorded stream, and must be followed before the recording ends.
void follow(Exec later, Exec earlier);

class Lane {
 public:
  // Takes main's watch, so give the context that first.
  explicit Lane(Exec main);
  // The queued work must be done, or the stream destroys itself behind it.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Without scratch and profile, which belong to the main stream. Valid as long as the lane.
  Exec exec() const { return exec_; }

 private:
  gpu::Context context_;
  Exec exec_;
};

}  // namespace assay
