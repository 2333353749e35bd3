// What the benches of the ops' cases (tests/ops/op_case.h) have in common: the limit that bounds a
// case, its row of JSON, and the error if none is chosen.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "tests/ops/op_case.h"

namespace assay {

// True if a case's operations are those of matrix products, which a limit of products bounds. The
// others compute element by element, without the matrix units: their bytes bound them.
bool multiplies(const OpCase& c);

// The time that the limits allow, as a share of the time taken.
struct Share {
  double share;
  const char* bound;  // "copy" or "matmul", whichever allows less
};
// product_flop_per_s: of the case's type; 0 if it is none of multiplies().
Share share_of(const Cost& cost, double copy_bytes_per_s, double product_flop_per_s, double p50_us);

struct CaseTiming {
  double p50_us = 0, min_us = 0;
  int64_t runs = 0;
};
// Of at least one run.
CaseTiming timing_of(const std::vector<double>& us);

// "op": ..., "case": ..., "p50_us": ..., "min_us", "runs", "bytes", "flops", "bound", "share"
std::string json_fields(const OpCase& c, const Cost& cost, const CaseTiming& t, const Share& share);

// Whether the results of a case that has run are those of its reference.
bool is_correct(const OpInstance& instance);

// UserError if one of these names, which --op gives, is no op and no family of ops.
void require_known_ops(const std::vector<std::string>& ops);

// "no large case matches --op rmsnrm --filter bf16", and in the hint the op that was likely meant.
// kind: "large case". ops: what --op names, or nothing. todo: the rest of the hint.
UserError no_case(const std::string& kind, const std::vector<std::string>& ops,
                  const std::string& filter, const std::string& todo);

}  // namespace assay
