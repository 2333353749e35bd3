#include "cuda/event_spans.h"

#include <atomic>
#include <utility>

namespace assay::gpu {

int64_t EventSpans::next_id() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

EventSpans::~EventSpans() {
  for (void* event : all_) events_.release(event);
}

void* EventSpans::unused() {
  if (free_.empty()) {
    all_.push_back(events_.make());
    return all_.back();
  }
  void* const event = free_.back();
  free_.pop_back();
  return event;
}

void EventSpans::begin(const Context& on, const char* name, Cost cost) {
  spans_.push_back({name, cost, unused(), nullptr});
  events_.record(on, spans_.back().begin);
}

void EventSpans::end(const Context& on) {
  spans_.back().end = unused();
  events_.record(on, spans_.back().end);
}

void EventSpans::begin_recording() {
  outside_ = std::exchange(spans_, {});
  // As many as all calls so far have used, and so enough for those that are recorded.
  for (size_t missing = all_.size() - free_.size(); missing > 0; --missing) {
    all_.push_back(events_.make());
    free_.push_back(all_.back());
  }
}

std::vector<EventSpan> EventSpans::end_recording() {
  return std::exchange(spans_, std::exchange(outside_, {}));
}

std::vector<EventSpan> EventSpans::take() {
  std::vector<EventSpan> ended = std::exchange(spans_, {});
  for (const EventSpan& span : ended) {
    free_.push_back(span.begin);
    free_.push_back(span.end);
  }
  return ended;
}

double EventSpans::seconds(const EventSpan& span) const {
  return events_.seconds(span.begin, span.end);
}

}  // namespace assay::gpu
