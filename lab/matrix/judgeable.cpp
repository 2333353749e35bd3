#include "lab/matrix/judgeable.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/some_names.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/share_claim.h"
#include "lab/runs/value_at_share.h"
#include "models/audit/horizon.h"

namespace assay {
namespace {

struct Never {
  std::string why;   // "trains no experts"; "" if the run can have the measure
  std::string hint;  // what gives it
};

// Whether a loss at this share can be read from the run's evaluations.
bool has_evaluation_near(const Config& config, double share) {
  const double wanted = share * double(config.run.steps);
  const int64_t every = config.eval.every, before = int64_t(wanted) / every * every;
  std::set<int64_t> near = {before, before + every, config.run.steps};
  for (const Landing& l : landings(config)) near.insert(l.step);
  near.erase(near.upper_bound(config.run.steps), near.end());
  return steps_read(std::vector(near.begin(), near.end()), wanted).has_value();
}

// The most steps that a run logs: by run.log_every, where it is validated, and the last one.
int64_t most_logged_steps(const Config& config) {
  const int64_t log = config.run.log_every, eval = config.eval.every;
  const auto multiples = [&](__int128 of) { return of > 0 ? int64_t(config.run.steps / of) : 0; };
  const __int128 both = __int128(log) / std::gcd(log, eval) * eval;
  const int64_t others = int64_t(landings(config).size()) + 1;
  return std::min(config.run.steps, multiples(log) + multiples(eval) - multiples(both) + others);
}

// Whether the run ends before it has logged a whole window. A branch has its trunk's steps too.
bool logs_no_window(const Cell& cell) {
  return cell.known_steps && cell.trunk.empty() &&
         most_logged_steps(cell.config) < cell.config.telemetry.window;
}

// Whether no verdict on the routers can be reached (too_early() of claims.cpp). A run that
// telemetry.collapse_stop ends has shown its collapse.
bool is_always_too_early(const RunMeasure& measure, const Cell& cell) {
  const bool of_window =
      measure.about == RunMeasure::About::kWindow || measure.name == std::string("collapsed");
  return of_window && !cell.config.telemetry.collapse_stop && logs_no_window(cell);
}

bool scores_core(const Config& config) {
  return config.eval.core && config.eval.core->tasks.empty() && config.eval.core->max_rows == 0;
}

Never never(const RunMeasure& measure, const Cell& cell, const std::vector<double>& shares) {
  const Config& config = cell.config;
  const std::string name = measure.name;
  if (measure.needs == RunMeasure::Needs::kExperts && !config.model.moe) {
    return {"has no experts", "val_loss, bits_per_byte and step_seconds are measures of every run"};
  }
  if (measure.needs == RunMeasure::Needs::kTarget && config.run.target_loss <= 0) {
    return {"has no run.target_loss",
            "set it in the model's configuration, or for all models under set:"};
  }
  if (measure.needs == RunMeasure::Needs::kCore && !scores_core(config)) {
    return {config.eval.core ? "scores a part of CORE only (eval.core.tasks, eval.core.max_rows)"
                             : "does not score CORE (eval.core)",
            "docs/evaluations.md says how a run is scored"};
  }
  if (is_always_too_early(measure, cell)) {
    return {strprintf("logs fewer steps than telemetry.window = %ld (run.steps = %ld, "
                      "run.log_every = %ld)",
                      long(config.telemetry.window), long(config.run.steps),
                      long(config.run.log_every)),
            "routers are judged over a whole window: make telemetry.window or run.log_every "
            "smaller, or train more steps"};
  }
  for (const double share : shares) {
    if (!cell.known_steps || has_evaluation_near(config, share)) continue;
    return {strprintf("has no evaluation near %.4g%% of its %ld steps (eval.every = %ld)",
                      100 * share, long(config.run.steps), long(config.eval.every)),
            strprintf("a loss is read at an evaluation less than a step away, or between two of "
                      "which the later is at most %g times as late: make eval.every smaller, or "
                      "add a landing (contract.landings)",
                      kFarthestApart)};
  }
  return {};
}

// Whether the claim is about this cell.
bool is_about(const MatrixClaim& claim, const Cell& cell) {
  if (cell.model != claim.of && cell.model != claim.other) return false;
  if (!claim.contract.empty() && claim.contract != cell.contract) return false;
  if (!claim.precision.empty() && claim.precision != cell.precision) return false;
  if (!claim.across) return true;
  const ClaimAcross& across = *claim.across;
  using Over = ClaimAcross::Over;
  const auto between = [&](const std::string& name) {
    return name == across.from || name == across.to;
  };
  if (across.over == Over::kContracts) return between(cell.contract);
  return across.over == Over::kShares || between(cell.precision);
}

void require_share_test(const MatrixClaim& claim, const RunMeasure& measure) {
  if (!measure.is_share) return;
  const bool is_difference = !claim.other.empty() || claim.across;
  const std::string why =
      untestable_share(claim.relation, claim.number, claim.within, is_difference);
  if (why.empty()) return;
  throw UserError(
      claim.where + ": the claim \"" + claim.name + "\" can never be judged: " + why,
      claim.measure + (is_difference ? " of a model is compared by below or above another's"
                                     : ", a mean over the seeds, is compared with e.g. 0.5"));
}

// A share that is given in percent would be above or below every value.
void require_bound_in_range(const MatrixClaim& claim, const RunMeasure& measure) {
  if (!is_from_0_to_1(measure)) return;
  const double least = claim.across ? -1 : 0;
  const bool bad_number = claim.number < least || claim.number > 1;
  if (!bad_number && claim.within <= 1) return;
  const double bad = bad_number ? claim.number : claim.within;
  const std::string key = bad_number ? claim_relation_name(claim.relation) : "within";
  throw UserError(claim.where + ": the claim \"" + claim.name + "\" has " + key +
                      strprintf(": %g, but ", bad) + claim.measure +
                      (claim.across ? " changes by -1 to 1" : " is from 0 to 1"),
                  (bad > 1 ? strprintf("not percent: %g%% is %g; ", bad, bad / 100) : "") +
                      std::string("docs/matrix.md#claims says what each measure is"));
}

}  // namespace

void require_judgeable_claims(const Matrix& matrix) {
  for (const MatrixClaim& claim : matrix.file.claims) {
    std::vector<double> shares;
    if (claim.at) shares = {*claim.at};
    if (claim.across && claim.across->over == ClaimAcross::Over::kShares) {
      shares = {claim.across->from_share, claim.across->to_share};
    }
    const RunMeasure* measure = find_run_measure(claim.measure);
    CHECK(measure != nullptr, "no measure %s", claim.measure.c_str());
    require_share_test(claim, *measure);
    require_bound_in_range(claim, *measure);
    for (const Cell& cell : matrix.cells) {
      if (!is_about(claim, cell)) continue;
      const auto [why, hint] = never(*measure, cell, shares);
      if (why.empty()) continue;
      throw ModelError(cell.model,
                       claim.where + ": the claim \"" + claim.name +
                           "\" can never be judged: " + cell.name + " " + why,
                       hint);
    }
  }
}

std::vector<std::string> no_verdict_notes(const MatrixPlan& plan) {
  struct Models {
    int64_t logged, window;
    std::vector<std::string> names;
  };
  std::vector<Models> found;
  for (const PlannedCell& run : plan.runs) {
    const Cell& cell = *run.cell;
    const bool begins = run.status.state == CellState::kWaiting && run.reuse.empty();
    if (!begins || moe_blocks(cell.config.model) == 0 || !logs_no_window(cell)) continue;
    const int64_t logged = most_logged_steps(cell.config), window = cell.config.telemetry.window;
    auto same = std::find_if(found.begin(), found.end(), [&](const Models& models) {
      return models.logged == logged && models.window == window;
    });
    if (same == found.end()) same = found.insert(same, {logged, window, {}});
    const bool several = plan.matrix->file.contracts.size() > 1;
    const std::string name = cell.model + (several ? " under " + cell.contract : "");
    if (std::count(same->names.begin(), same->names.end(), name) == 0) same->names.push_back(name);
  }
  std::vector<std::string> notes;
  for (const auto& [logged, window, names] : found) {
    notes.push_back(
        "the routers of " + some_names(names) +
        strprintf(" stay too early to judge: a verdict needs telemetry.window = %ld logged steps, "
                  "and their runs log at most %ld (set: {telemetry.window: %ld}, but not once they "
                  "have begun)",
                  long(window), long(logged), long(logged)));
  }
  return notes;
}

}  // namespace assay
