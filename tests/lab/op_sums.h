// The ops of a step, by op.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/cluster/step_ops.h"

namespace assay {

using OpSums = std::map<std::string, OpCall>;

// Calls of one op are one entry: their number, and what all of them cost.
inline OpSums sums_by_op(const std::vector<OpCall>& calls) {
  OpSums sums;
  for (const OpCall& call : calls) {
    OpCall& sum = sums.try_emplace(call.op, OpCall{call.op, 0, {}}).first->second;
    sum.calls += call.calls;
    sum.cost.bytes += double(call.calls) * call.cost.bytes;
    sum.cost.flops += double(call.calls) * call.cost.flops;
  }
  return sums;
}

}  // namespace assay
