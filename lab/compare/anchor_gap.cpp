#include "lab/compare/anchor_gap.h"

#include <algorithm>

namespace assay {

std::vector<AnchorGap> anchor_gaps(const AnchorLog& anchor, const SeedGroup& group) {
  std::vector<AnchorGap> gaps;
  for (const StepValue& public_one : anchor.val_loss_nats) {
    SeedValues ours = values_of(
        group, [&](const RunRecord& run) { return finite_value(run.val_at(public_one.step)); });
    if (ours.empty()) continue;
    const Summary summary = *summarise(ours);
    for (SeedValue& v : ours) v.value -= public_one.value;
    gaps.push_back({.step = public_one.step,
                    .anchor_nats = public_one.value,
                    .ours = summary,
                    .gap = *summarise(ours)});
  }
  std::reverse(gaps.begin(), gaps.end());
  return gaps;
}

}  // namespace assay
