#include "engine/rank_sums.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "ops/tree_sum.h"

namespace assay {

namespace {

// Tensors begin at multiples of this in a plan.
constexpr int64_t kAlignedBytes = 256;

std::byte* gradient_of(const ParameterRef& p) {
  return reinterpret_cast<std::byte*>(p.grad.data);
}
std::byte* master_of(const ParameterRef& p) {
  return p.bf16_state() ? reinterpret_cast<std::byte*>(p.weight.data)
                        : reinterpret_cast<std::byte*>(p.master.data);
}
int64_t master_bytes(const ParameterRef& p) {
  return p.bf16_state() ? int64_t(sizeof(bf16)) : int64_t(sizeof(float));
}

// From the first element of neighbouring segments to the end of the last one, gaps between tensors
// included.
Group::Run run_of(const std::vector<Segment>& segments, const std::vector<ParameterRef>& parameters,
                  const std::byte* block, std::byte* (*address)(const ParameterRef&),
                  int64_t (*element)(const ParameterRef&)) {
  if (segments.empty()) return {};
  const auto at = [&](const Segment& s, int64_t i) {
    const ParameterRef& p = parameters[s.parameter];
    return address(p) + i * element(p);
  };
  const Segment& last = segments.back();
  const std::byte* const begin = at(segments.front(), segments.front().first);
  const std::byte* const end = at(last, last.first + last.count);
  int64_t most = 0;
  for (const Segment& s : segments) {
    most += round_up(s.count * element(parameters[s.parameter]), kAlignedBytes);
  }
  CHECK(begin >= block && end > begin && end - begin <= most,
        "rank_sums: %zu segments take %ld bytes, expected at most %ld", segments.size(),
        long(end - begin), long(most));
  return {size_t(begin - block), size_t(end - begin)};
}

int64_t gradient_bytes(const ParameterRef&) {
  return sizeof(float);
}

}  // namespace

void RankSums::plan(MemoryPlan& plan, const std::vector<ParameterRef>& parameters,
                    const std::string& name) {
  CHECK(ranks_ == nullptr || shards_.ranks() == ranks_->size(), "shards for %d ranks, %d are there",
        shards_.ranks(), ranks_->size());
  int64_t largest = 0;
  for (const Shards::Bucket& bucket : shards_.buckets()) {
    int64_t bytes = 0;
    for (const Segment& s : bucket[rank_]) {
      CHECK(s.first + s.count <= parameters[s.parameter].size(), "%s has %ld elements",
            parameters[s.parameter].spec->name.c_str(), long(parameters[s.parameter].size()));
      bytes += round_up(s.count * int64_t(sizeof(float)), kAlignedBytes);
    }
    largest = std::max(largest, bytes / int64_t(sizeof(float)));
  }
  plan.add(Section::kSums, name + ".received", received_, {shards_.ranks() * largest});
}

void RankSums::bind(const std::vector<ParameterRef>& parameters) {
  runs_.clear();
  if (shards_.buckets().empty()) return;
  // In both blocks tensors lie in the order of the buckets, the reverse order of `parameters`.
  const Shards::Bucket& first = shards_.buckets().front();
  const auto segments = std::find_if(first.begin(), first.end(),
                                     [](const std::vector<Segment>& s) { return !s.empty(); });
  const ParameterRef& begin = parameters[segments->front().parameter];
  gradients_ = gradient_of(begin);
  masters_ = master_of(begin);
  for (const Shards::Bucket& bucket : shards_.buckets()) {
    Runs& runs = runs_.emplace_back();
    for (const std::vector<Segment>& owned : bucket) {
      runs.gradients.push_back(run_of(owned, parameters, gradients_, gradient_of, gradient_bytes));
      runs.masters.push_back(run_of(owned, parameters, masters_, master_of, master_bytes));
    }
  }
}

void RankSums::add_gradients(Exec on) const {
  const auto ranks = size_t(shards_.ranks());
  for (const Runs& bucket : runs_) {
    const Group::Run& own = bucket.gradients[rank_];
    Group::Exchange e{.to = received_.data, .received = {}, .from = gradients_, .sent = {}};
    e.sent = bucket.gradients;
    for (size_t r = 0; r < ranks; ++r) e.received.push_back({r * own.bytes, own.bytes});
    ranks_->all_to_all_v(on, e);
    const auto n = int64_t(own.bytes / sizeof(float));
    tree_sum(on, {.to = {reinterpret_cast<float*>(gradients_ + own.offset), {n}},
                  .from = {received_.data, {int64_t(ranks), n}}});
  }
}

void RankSums::gather_masters(Exec on) const {
  for (const Runs& bucket : runs_) {
    Group::Exchange e{.to = masters_, .received = bucket.masters, .from = masters_, .sent = {}};
    e.sent.assign(size_t(shards_.ranks()), bucket.masters[rank_]);
    ranks_->all_to_all_v(on, e);
  }
}

}  // namespace assay
