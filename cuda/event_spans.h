// Spans of work on a GPU's stream, each between two events, for profiles by events
// (cuda/profile.h). Nothing waits for the device, so spans may be part of a recorded graph; their
// events are recorded anew by each replay.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cost.h"
#include "cuda/context.h"

namespace assay::gpu {

struct EventSpan {
  const char* name;
  Cost cost;
  void *begin, *end;  // events
};

class EventSpans {
 public:
  explicit EventSpans(const Context& on) : events_(*on.events) {}
  ~EventSpans();
  EventSpans(const EventSpans&) = delete;
  EventSpans& operator=(const EventSpans&) = delete;

  // Queues the event at which a span begins, and the one at which it ends. Spans do not overlap.
  void begin(const Context& on, const char* name, Cost cost);
  void end(const Context& on);
  // The spans between these two calls are those of a recording: their events are not used again.
  // The same calls must have run before, so that no event is made while the graph is recorded.
  void begin_recording();
  std::vector<EventSpan> end_recording();
  // The spans that ended since the last call and are in no recording. Their events may be read
  // until the next span begins.
  std::vector<EventSpan> take();
  double seconds(const EventSpan& span) const;  // the work must be done

  // Another number for each object, above 0.
  int64_t id() const { return id_; }

 private:
  void* unused();
  const Events& events_;
  const int64_t id_ = next_id();
  static int64_t next_id();
  std::vector<void*> all_, free_;
  std::vector<EventSpan> spans_, outside_;  // outside_: before the recording
};

}  // namespace assay::gpu
