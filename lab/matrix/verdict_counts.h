// How many claims have which verdict. A verdict that the correction for the number of claims does
// not leave is counted apart: it is none to count on.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lab/matrix/claims.h"

namespace assay {

inline constexpr const char* kContractNotKept = ", contract not kept";

// "holds", "undecided", "fails, not after Holm", "holds, contract not kept"; without
// ClaimResult::why.
std::string marked_verdict(const ClaimResult& result);

class VerdictCounts {
 public:
  void add(const ClaimResult& result);
  void add_untested() { untested_ += 1; }

  // "11 hold, 1 holds not after Holm, 4 fail not after Holm, 2 undecided"; "" of none.
  std::string text() const;

 private:
  struct Count {
    int64_t plain = 0, not_after_holm = 0;
  };
  std::map<ClaimVerdict, Count> counts_;
  int64_t untested_ = 0;
};

}  // namespace assay
