#include "lab/cluster/step_calls.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/math.h"
#include "engine/parameter_spec.h"
#include "ops/router.h"

namespace assay {

namespace {

using Cause = GroupCall::Cause;
using Kind = GroupCall::Kind;

constexpr int64_t kAlignedBytes = 256;  // of a tensor in a plan (cuda/memory_plan.h)

// Bytes of a call, by rank.
struct Traffic {
  std::vector<int64_t> sent, received;
};

class Calls {
 public:
  explicit Calls(int ranks) : ranks_(ranks) {}

  // `bytes` are what a rank gives; each other one gets them.
  void all_gather(Cause cause, int64_t bytes) { same(Kind::kAllGather, cause, bytes); }
  void sum_integers(Cause cause, int64_t count) {
    same(Kind::kSumIntegers, cause, count * int64_t(sizeof(int64_t)));
  }
  void exchange(Cause cause, Traffic traffic) {
    calls_.push_back({.kind = Kind::kExchange,
                      .cause = cause,
                      .sent = std::move(traffic.sent),
                      .received = std::move(traffic.received)});
  }
  // traffic: by share of the experts, its ranks being the replicas.
  void exchange_of_replicas(Cause cause, const std::vector<Traffic>& traffic) {
    GroupCall call{.kind = Kind::kExchange,
                   .cause = cause,
                   .over = GroupCall::Over::kReplicas,
                   .sent = {},
                   .received = {}};
    for (size_t r = 0; r < size_t(ranks_); ++r) {
      const Traffic& of_share = traffic[r % traffic.size()];
      call.sent.push_back(of_share.sent[r / traffic.size()]);
      call.received.push_back(of_share.received[r / traffic.size()]);
    }
    calls_.push_back(std::move(call));
  }
  std::vector<GroupCall> take() { return std::move(calls_); }

 private:
  void same(Kind kind, Cause cause, int64_t bytes) {
    const std::vector<int64_t> each(size_t(ranks_), bytes * (ranks_ - 1));
    calls_.push_back({.kind = kind, .cause = cause, .sent = each, .received = each});
  }

  const int ranks_;
  std::vector<GroupCall> calls_;
};

// Where each parameter begins in a block in which tensors lie in the reverse order of `parameters`,
// those of which ranks have a share after the others.
std::vector<int64_t> positions(const std::vector<ParameterRef>& parameters,
                               int64_t (*element)(const ParameterRef&)) {
  std::vector<int64_t> at(parameters.size());
  int64_t next = 0;
  for (const bool shared_out : {false, true}) {
    for (size_t p = parameters.size(); p-- > 0;) {
      if (parameters[p].spec->shared_out() != shared_out) continue;
      at[p] = next;
      next += round_up(parameters[p].size() * element(parameters[p]), kAlignedBytes);
    }
  }
  return at;
}

int64_t gradient_element(const ParameterRef&) {
  return sizeof(float);
}
int64_t master_element(const ParameterRef& p) {
  return p.bf16_state() ? sizeof(bf16) : sizeof(float);
}

// Bytes of each rank's run of a bucket, gaps between tensors included (engine/rank_sums.cpp).
std::vector<int64_t> run_bytes(const Shards::Bucket& bucket,
                               const std::vector<ParameterRef>& parameters,
                               int64_t (*element)(const ParameterRef&)) {
  const std::vector<int64_t> at = positions(parameters, element);
  std::vector<int64_t> bytes;
  for (const std::vector<Segment>& owned : bucket) {
    if (owned.empty()) {
      bytes.push_back(0);
      continue;
    }
    const Segment &first = owned.front(), &last = owned.back();
    const int64_t begin = at[first.parameter] + first.first * element(parameters[first.parameter]);
    const int64_t end =
        at[last.parameter] + (last.first + last.count) * element(parameters[last.parameter]);
    bytes.push_back(end - begin);
  }
  return bytes;
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t all = 0;
  for (const int64_t v : values) all += v;
  return all;
}

// Each rank sends what others own, and gets its own from all others.
Traffic to_owners(const std::vector<int64_t>& owned) {
  Traffic traffic;
  const int64_t all = sum(owned);
  for (const int64_t own : owned) {
    traffic.sent.push_back(all - own);
    traffic.received.push_back(own * int64_t(owned.size() - 1));
  }
  return traffic;
}
// The other way.
Traffic from_owners(const std::vector<int64_t>& owned) {
  Traffic traffic = to_owners(owned);
  std::swap(traffic.sent, traffic.received);
  return traffic;
}

// The shards of the replicas of each share of the experts; none where there is one replica. Shares
// are cut at pieces of the whole tensors, so each one has other cuts.
std::vector<Shards> shards_of_shares(const Config& config, const TrainingMemory& memory) {
  std::vector<Shards> all;
  if (!memory.expert_sums) return all;
  const std::vector<ParameterRef> parameters = memory.model->parameters();
  for (int64_t share = 0; share < config.parallel.expert_ranks; ++share) {
    std::vector<ParameterSpec> specs;
    for (const ParameterRef& p : parameters) specs.push_back(*p.spec);
    std::vector<const ParameterSpec*> of_share;
    for (ParameterSpec& spec : specs) {
      if (spec.shared_out()) spec.share = share;
      of_share.push_back(&spec);
    }
    all.emplace_back(of_share, config.optimizer.kind, memory.expert_shards->ranks(),
                     Shards::kBucket, Shards::Of::kShares);
  }
  return all;
}

// Numbers in a buffer of the optimizer's (engine/optimizer.cpp).
int64_t numbers(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryPlan::Entry& e : plan.entries()) {
    if (e.section == Section::kScratch && e.name == name) {
      return int64_t(e.bytes / sizeof(double));
    }
  }
  CHECK(false, "no %s is planned", name.c_str());
  return 0;
}

// Bytes of what the host reads by these names (models/linear/quantised_products.cpp, decoder.cpp).
std::vector<int64_t> read_bytes(const MemoryPlan& plan, const std::set<std::string>& names) {
  std::vector<int64_t> bytes;
  for (const MemoryPlan::Entry& e : plan.entries()) {
    if (e.section == Section::kHostVisible && names.contains(e.name)) {
      bytes.push_back(int64_t(e.bytes));
    }
  }
  return bytes;
}

}  // namespace

int64_t GroupCall::most() const {
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kTargets:
      return "counted targets";
    case Cause::kGradients:
      return "gradients";
    case Cause::kNorm:
      return "gradient norm";
    case Cause::kRatios:
      return "update ratios";
    case Cause::kParameters:
      return "parameters";
    case Cause::kCounts:
      return "router counts";
    case Cause::kResults:
      return "results";
  }
  return "?";
}

std::vector<GroupCall> calls_of_step(const Config& config, TrainingMemory& memory, StepKind kind) {
  CHECK(memory.shards != nullptr, "calls of a step on one rank, %ld parts",
        long(config.parallel.parts));
  const std::vector<ParameterRef> parameters = memory.model->parameters();
  const Shards& shards = *memory.shards;
  const int64_t local_parts = config.parallel.batch_parts() / shards.ranks();
  const int64_t moe = moe_blocks(config.model);
  Calls calls(shards.ranks());
  const std::vector<Shards> shares = shards_of_shares(config, memory);
  const auto exchange_of_replicas = [&](Cause cause, auto traffic_of, auto element) {
    size_t buckets = 0;
    for (const Shards& share : shares) buckets = std::max(buckets, share.buckets().size());
    for (size_t bucket = 0; bucket < buckets; ++bucket) {
      std::vector<Traffic> traffic;
      for (const Shards& share : shares) {
        std::vector<int64_t> owned(size_t(share.ranks()));
        if (bucket < share.buckets().size()) {
          owned = run_bytes(share.buckets()[bucket], parameters, element);
        }
        traffic.push_back(traffic_of(owned));
      }
      calls.exchange_of_replicas(cause, traffic);
    }
  };

  calls.all_gather(Cause::kTargets, sizeof(int64_t));
  for (const Shards::Bucket& bucket : shards.buckets()) {
    calls.exchange(Cause::kGradients, to_owners(run_bytes(bucket, parameters, gradient_element)));
  }
  exchange_of_replicas(Cause::kGradients, to_owners, gradient_element);
  calls.sum_integers(Cause::kNorm, numbers(memory.plan, "gradient_norm_partial"));
  if (kind == StepKind::kSampled) {
    calls.sum_integers(Cause::kRatios, numbers(memory.plan, "squares"));
  }
  for (const Shards::Bucket& bucket : shards.buckets()) {
    calls.exchange(Cause::kParameters, from_owners(run_bytes(bucket, parameters, master_element)));
  }
  exchange_of_replicas(Cause::kParameters, from_owners, master_element);
  for (int64_t block = 0; block < moe; ++block) {
    const MoeConfig& m = *config.model.moe;
    calls.sum_integers(Cause::kCounts, m.experts);
    if (m.router.bias_rate.automatic) calls.sum_integers(Cause::kCounts, kLeadSums);
  }
  calls.all_gather(Cause::kResults, local_parts * int64_t(sizeof(double)));
  for (int64_t block = 0; block < moe; ++block) {
    calls.all_gather(Cause::kResults, local_parts * kRouterMeasures * int64_t(sizeof(double)));
    if (memory.expert_shards) calls.all_gather(Cause::kResults, sizeof(int64_t));  // rounds
    calls.all_gather(Cause::kResults, 2 * int64_t(sizeof(double)));  // margin and lead
  }
  for (const int64_t bytes : read_bytes(memory.plan, {"quantised.not_finite"})) {
    calls.all_gather(Cause::kResults, bytes);
  }
  if (kind == StepKind::kSampled) {
    std::set<std::string> measures;
    for (const ParameterRef& p : parameters) measures.insert(p.spec->name + ".measures");
    for (const int64_t bytes : read_bytes(memory.plan, measures)) {
      calls.all_gather(Cause::kResults, bytes);
    }
  }
  return calls.take();
}

std::vector<int64_t> bytes_sent(const std::vector<GroupCall>& calls) {
  std::vector<int64_t> sent;
  for (const GroupCall& call : calls) {
    sent.resize(call.sent.size());
    for (size_t r = 0; r < sent.size(); ++r) sent[r] += call.sent[r];
  }
  return sent;
}

}  // namespace assay
