#include "lab/matrix/verdict_counts.h"

#include "base/check.h"

namespace assay {
namespace {

bool is_decided(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::kHolds || verdict == ClaimVerdict::kFails;
}

bool is_marked(const ClaimResult& r) {
  return is_decided(r.verdict) && r.p && !r.after_holm();
}

// "1 holds", "2 hold", "2 undecided".
std::string counted(int64_t count, ClaimVerdict verdict) {
  std::string word = claim_verdict_name(verdict);
  if (is_decided(verdict) && count != 1) word.pop_back();
  return strprintf("%ld ", long(count)) + word;
}

}  // namespace

std::string marked_verdict(const ClaimResult& result) {
  std::string verdict = claim_verdict_name(result.verdict);
  if (is_marked(result)) verdict += ", not after Holm";
  if (is_decided(result.verdict) && !result.not_held.empty()) verdict += kContractNotKept;
  return verdict;
}

void VerdictCounts::add(const ClaimResult& result) {
  Count& count = counts_[result.verdict];
  (is_marked(result) ? count.not_after_holm : count.plain) += 1;
}

std::string VerdictCounts::text() const {
  std::string text;
  const auto append = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const auto& [verdict, count] : counts_) {
    if (count.plain > 0) append(counted(count.plain, verdict));
    if (count.not_after_holm > 0) {
      append(counted(count.not_after_holm, verdict) + " not after Holm");
    }
  }
  if (untested_ > 0) append(strprintf("%ld untested", long(untested_)));
  return text;
}

}  // namespace assay
