#include "session/since_last_launch.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/config/differences.h"

namespace assay {

std::string since_last_launch_text(const Config& last, const Config& now) {
  std::string text;
  for (const FieldDifference& one : changed_settings(last, now)) {
    text += (text.empty() ? "changed since the last launch: " : "; ") + one.text();
  }
  return text;
}

std::vector<std::string> checkpoint_warnings(const Config& saved_with, const Config& now,
                                             const Checkpoints& checkpoints, int64_t steps_done) {
  std::vector<std::string> lines;
  const int64_t kept = saved_with.run.keep_checkpoints, keep = now.run.keep_checkpoints;
  const int64_t removed = checkpoints.removed_by_next_save(steps_done);
  if (keep < kept && removed > 1) {
    const int64_t saved = std::min(removed, kept - keep);
    lines.push_back(
        strprintf("run.keep_checkpoints: %ld -> %ld: the next save removes up to %ld checkpoints "
                  "(--set run.keep_checkpoints=%ld keeps %s)",
                  long(kept), long(keep), long(removed), long(kept),
                  saved == removed ? "them" : strprintf("%ld of them", long(saved)).c_str()));
  }
  const std::optional<int64_t> best = checkpoints.best_step();
  if (best && !now.run.keep_best) {
    lines.push_back(strprintf(
        "run.keep_best is false: checkpoints/best stays at step %ld, whatever the validation "
        "losses are from here on (--set run.keep_best=true follows the lowest)",
        long(*best)));
  }
  return lines;
}

}  // namespace assay
