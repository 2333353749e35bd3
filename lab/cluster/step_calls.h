// Every collective call of one training step (engine/trainer.cpp), with the bytes that each rank
// sends, from the planned memory of one rank: no launch is needed. A test runs the same steps and
// finds the same calls. Where ranks share the experts, what they send each other for that is not
// listed: the router decides how many rows of tokens these are.
#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder/training_memory.h"

namespace assay {

struct GroupCall {
  enum class Kind { kAllGather, kExchange, kSumIntegers } kind;
  enum class Cause { kTargets, kGradients, kNorm, kRatios, kParameters, kCounts, kResults } cause;
  // kReplicas: the ranks with the same share of the experts, in each such group at once.
  enum class Over { kAll, kReplicas } over = Over::kAll;
  std::vector<int64_t> sent;      // bytes, by rank: those of Group::bytes_sent()
  std::vector<int64_t> received;  // bytes, by rank

  // Of the rank that sends or receives most: the call takes as long as it does.
  int64_t most() const;
};
const char* name_of(GroupCall::Cause cause);

// kSampled: ratios and quantisation measures are taken (Trainer::Measure::kRatios).
enum class StepKind { kPlain, kSampled };

// In the order of the step. memory: of any rank, with ranks; config: with its parts resolved.
// Without evaluations, checkpoints and what a run tells its ranks between steps.
std::vector<GroupCall> calls_of_step(const Config& config, TrainingMemory& memory, StepKind kind);

// Of all calls, by rank.
std::vector<int64_t> bytes_sent(const std::vector<GroupCall>& calls);

}  // namespace assay
