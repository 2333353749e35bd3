// The numbers of a watched run that a terminal shows: the loss, the latest measurements, the
// routers. Reads only rows that it shows; load vectors are not unpacked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/live/run_status.h"
#include "lab/runs/run_record.h"

namespace assay {

struct RouterView {
  int64_t experts = 0, top_k = 0;
  int64_t last = 0;     // logged steps that the measures are over: W, or as many as there are
  std::string verdict;  // name_of(RouterState), lab/runs/router_state.h
  std::vector<LayerHealth> layers;
};

struct RunView {
  RunStatus status;
  Seen seen = Seen::kNever;
  std::vector<StepValue> train_loss_nats = {};
  std::vector<EvalValue> val_loss_nats = {};
  // Of the last logged step. A gradient norm that is NaN there, and so not recorded, is NaN.
  std::optional<double> lr, gradient_norm, tokens_per_s, mfu_share;
  std::optional<RouterView> router;
};

// A run that cannot be read has only a status.
RunView view_run(const std::string& path, Seen seen, Wait wait = Wait::kLong);

// Runs that are watched together.
class RunViews {
 public:
  explicit RunViews(const std::vector<std::string>& runs);
  // Those whose files have changed, or whose last read failed. With Wait::kBrief a run that another
  // program holds is left to the next read.
  void read(Wait wait);
  const std::vector<RunView>& all() const { return views_; }

 private:
  std::vector<std::string> runs_, before_;  // run_fingerprint() of what was read; "": read it again
  std::vector<Seen> seen_;
  std::vector<RunView> views_;
};

}  // namespace assay
