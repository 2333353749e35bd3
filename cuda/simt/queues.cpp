#include "cuda/simt/queues.h"

#include <algorithm>
#include <utility>

namespace assay::simt {

std::deque<Queues::Item>& Queues::of(size_t stream) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  return streams_[stream];
}

void Queues::push(size_t stream, Operation operation) {
  if (empty()) events_.clear();
  of(stream).push_back(
      {.kind = Kind::kOperation, .place = pushed_++, .operation = std::move(operation)});
}

void Queues::edge(size_t later, size_t earlier) {
  if (empty(earlier)) return;
  const size_t event = events_.size();
  events_.push_back(false);
  of(earlier).push_back({.kind = Kind::kSetsEvent, .place = pushed_++, .event = event});
  of(later).push_back({.kind = Kind::kAwaitsEvent, .place = pushed_++, .event = event});
}

bool Queues::empty() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s.empty(); });
}

std::vector<size_t> Queues::in_order(Pace pace) const {
  std::vector<size_t> order;
  for (size_t s = 0; s < streams_.size(); ++s) {
    if (!streams_[s].empty()) order.push_back(s);
  }
  const auto rank = [&](size_t s) -> uint64_t {
    if (pace == Pace::kLaneFirst) return s == 0 ? 1 : 0;
    if (pace == Pace::kLaneLast) return s == 0 ? 0 : 1;
    return streams_[s].front().place;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  return order;
}

Queues::Step Queues::step(Item& item) {
  if (item.kind == Kind::kSetsEvent) {
    events_[item.event] = true;
    return Step::kDone;
  }
  if (item.kind == Kind::kAwaitsEvent) return events_[item.event] ? Step::kDone : Step::kNone;
  if (item.poll) return item.poll() ? Step::kDone : Step::kNone;
  item.poll = item.operation();
  return item.poll ? Step::kBegun : Step::kDone;
}

bool Queues::go_on(Pace pace) {
  for (const size_t s : in_order(pace)) {
    Item& head = streams_[s].front();
    const Step step = this->step(head);
    if (step == Step::kDone) streams_[s].pop_front();
    if (step != Step::kNone) return true;
    // An operation of a lane that has begun is waited for. It needs other ranks, not what is
    // behind it here.
    if (pace == Pace::kLaneFirst && s != 0 && head.poll) return false;
  }
  return false;
}

}  // namespace assay::simt
