#include "engine/run/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/seconds_since.h"
#include "comm/agree.h"
#include "cuda/transfer.h"
#include "engine/run/best_checkpoint.h"
#include "engine/run/other_work.h"
#include "engine/run/saved_run.h"
#include "engine/same_bits.h"

namespace assay {

namespace {

using Clock = std::chrono::steady_clock;

class Run {
 public:
  Run(RunParts& parts, const RunStart& start)
      : p_(parts),
        trainer_(parts.config, parts.model, parts.sums, parts.optimizer, parts.loader,
                 parts.mask_id, parts.ranks),
        group_(parts.ranks ? &parts.ranks->group : nullptr),
        routers_(parts.model, parts.config, parts.probe),
        steps_(parts.config.run.steps),
        done_(start.steps_done),
        saved_(start.steps_done),
        same_until_(start.steps_done),
        best_(parts, start),
        other_(parts.config.run, parts.evaluators, parts.landings),
        seconds_before_(start.train_s),
        energy_(parts.energy, start.energy) {
    if (done_ == 0) return;
    // The phase of the last step, since evaluations may come before the next step.
    if (done_ > recipe_steps(parts.config)) parts.model.enter(parts.on, PrecisionPhase::kBf16);
    parts.recorder.resume(done_, parts.config.telemetry.window, routers_);
    routers_.set_last_probe(start.last_probe);
    best_.finish_last_save(start);
  }

  RunResult train() {
    if (done_ > 0 && reached_before()) return complete(RunEnd::kTargetLoss);
    if (collapsed()) return stop_collapsed();  // it was stopped for this reason before
    validate_start();
    if (done_ > 0 && done_ < steps_ && measure(moment(done_)) == Measured::kNotAll) {
      return finish(RunEnd::kInterrupted);
    }
    while (done_ < steps_) {
      const StepStats stats = step_on_good_data();
      if (!is_finite(stats)) return stop_non_finite(stats);
      if (p_.on_step) p_.on_step(stats);
      require_same_bits(stats);
      const Target target = validate();
      if (done_ == steps_ && !validation_is_finite()) return stop_without_loss();
      record_landings();
      if (target == Target::kReached) return complete(RunEnd::kTargetLoss);
      if (done_ == steps_) break;
      if (collapsed()) return stop_collapsed();
      if (due(p_.config.run.checkpoint_every) || milestone() || best_.to_save()) {
        save();
      } else if (due_by_time()) {
        try_to_save();
      }
      const Measured measured = measure(moment(done_));
      if (on_any_rank(group_, p_.stop_requested()) || measured == Measured::kNotAll) {
        return finish(RunEnd::kInterrupted);
      }
      if (steps_here_ == p_.stop_after) return finish(RunEnd::kStopAfter);
    }
    return complete(RunEnd::kSteps);
  }

 private:
  enum class Target { kNotReached, kReached };
  enum class Measured { kAll, kNotAll };

  static bool is_finite(const StepStats& stats) {
    return std::isfinite(stats.loss) && stats.non_finite == 0 &&
           stats.not_finite_operand.operand == nullptr;
  }
  bool due(int64_t every) const { return every > 0 && done_ % every == 0; }

  // By the clock, which changes when a run is saved but no bit of what it computes.
  bool due_by_time() const {
    if (p_.config.run.checkpoint_minutes <= 0) return false;
    return of_first_rank(
        group_, seconds_since(saved_at_) >= seconds_between_saves(p_.config.run, save_seconds_));
  }

  bool milestone() const { return due(p_.config.run.milestone_every) || landing(done_); }

  bool landing(int64_t step) const {
    return std::any_of(p_.landings.begin(), p_.landings.end(),
                       [&](const Landing& l) { return l.step == step; });
  }

  EvalMoment moment(int64_t step) const {
    return {.steps_done = step, .landing = landing(step), .last = step == steps_};
  }

  bool recorded(int64_t step, const Evaluator& evaluator) const {
    return of_first_rank(group_, p_.recorder.has_evaluation(step, evaluator.task()));
  }

  // Ranks have the same parameters and the same router biases, which each computes for itself: a
  // difference is a fault of hardware or of this program.
  void require_same_bits(const StepStats& stats) {
    if (group_ == nullptr || !logged(done_)) return;
    const std::string difference =
        different_bits(gather(*group_, RankBits{stats.hash, stats.bias_hash}));
    if (!difference.empty()) {
      throw UserError(strprintf("after step %ld ", long(done_)) + difference,
                      strprintf("a machine computes or stores wrong bits, or the machines differ: "
                                "move checkpoints from after step %ld away, at which all had the "
                                "same, and start again without that machine",
                                long(same_until_)));
    }
    same_until_ = done_;
  }

  bool validated(int64_t step) const {
    return !p_.evaluators.empty() && p_.evaluators.front()->due(moment(step));
  }

  // Router measures look back over logged steps, so read-only evaluations must not log steps.
  bool logged(int64_t step) const {
    return step % p_.config.run.log_every == 0 || step == steps_ || validated(step);
  }

  // Samples every (run.log_every * telemetry.probe_every)-th step. This depends only on the step,
  // so a resumed run samples the same steps.
  Trainer::Measure measured(int64_t step) const {
    const int64_t every = p_.config.run.log_every;
    const bool samples = step % every == 0 && step / every % p_.config.telemetry.probe_every == 0;
    return samples ? Trainer::Measure::kRatios : Trainer::Measure::kNothing;
  }

  // Called before the checkpoint is saved, so that a run killed in between repeats the landing.
  void record_landings() {
    for (const Landing& l : p_.landings) {
      if (l.step != done_) continue;
      p_.recorder.event(done_, "landing",
                        strprintf("%g of %s", l.fraction, name_of(p_.config.contract.kind)));
    }
  }

  // What was trained before the data could not be read is right, and is kept.
  StepStats step_on_good_data() {
    try {
      return step();
    } catch (const NoBatch& error) {
      if (done_ == 0) throw;
      throw NoBatch(error.what() + kept_before_throwing(), error.hint());
    }
  }

  std::string kept_before_throwing() {
    try {
      if (saved_ != done_) save();
    } catch (const UserError& error) {
      return strprintf("; and the checkpoint of step %ld: ", long(done_)) + error.what();
    }
    return strprintf("; the checkpoint of step %ld has what was trained before", long(done_));
  }

  using Pace = Control::Pace;
  void doing(const char* what, Pace pace) const {
    if (p_.doing) p_.doing(what, done_, pace);
  }

  // What each rank did in the step that took `seconds`; nothing if there is one. Collective.
  std::vector<RankStep> rank_steps(const StepStats& stats, double seconds) const {
    if (group_ == nullptr) return {};
    return gather(*group_, RankStep{.step_ms = 1e3 * seconds,
                                    .wait_ms = 1e3 * stats.wait_s,
                                    .bytes_sent = stats.sent_bytes,
                                    .peak_rss_bytes = int64_t(peak_rss_bytes())});
  }

  StepStats step() {
    energy_.go_on();
    const auto start = Clock::now();
    doing("waiting for the data", Pace::kReading);
    const bool log = logged(done_ + 1);
    StepStats stats = trainer_.step(p_.on, done_, measured(done_ + 1),
                                    [this] { doing("training step", Pace::kSteady); });
    const double seconds = seconds_since(start);
    done_ += 1;
    train_seconds_ += seconds;
    steps_here_ += 1;
    energy_.count_if_older_than(std::chrono::seconds(10));
    if (log || !is_finite(stats)) {
      energy_.pause();
      const double hash_seconds = log ? add_hash(stats) : std::nan("");
      // The first rank probes in its recorder, so what all do together comes before.
      const StepTimes times{.step_s = seconds,
                            .train_s = seconds_before_ + train_seconds_,
                            .hash_s = hash_seconds,
                            .other_left_s = other_seconds_left(),
                            .energy = energy_.total(),
                            .ranks = rank_steps(stats, seconds)};
      join_probe();
      p_.recorder.step(p_.on, stats, times, p_.model, routers_);
    }
    p_.recorder.took(seconds_since(start));
    return stats;
  }

  // Of the evaluations and saves that this step and those after it will need.
  double other_seconds_left() const {
    const double mean = train_seconds_ / double(steps_here_);
    return other_.seconds_left(done_, mean * double(steps_ - done_));
  }

  // Records an evaluation that began at `start`.
  void record(const Evaluator& evaluator, int64_t step, const Evaluation& evaluation,
              Clock::time_point start) {
    const double seconds = seconds_since(start);
    other_.evaluated(evaluator, seconds);
    p_.recorder.evaluation(step, evaluation, seconds);
  }

  // Seconds that it took.
  double add_hash(StepStats& stats) const {
    const auto start = Clock::now();
    trainer_.add_hash(p_.on, stats);
    return seconds_since(start);
  }

  // Where ranks share the experts, all compute the first one's probe with it.
  void join_probe() {
    if (p_.ranks == nullptr || p_.ranks->experts == nullptr) return;
    if (!of_first_rank(group_, routers_.probe_due()) || p_.ranks->layout.first()) return;
    routers_.join_probe(p_.on, p_.model);
  }

  static double loss_of(const Evaluation& validation) { return validation.results.front().value; }

  bool reaches_target(double loss) const {
    const double wanted = p_.config.run.target_loss;
    return wanted > 0 && loss <= wanted;
  }

  // Whether all ranks have this error of an evaluation, so that none waits in it for the others.
  bool failed_in_step(const UserError& error) const {
    const auto* const all = dynamic_cast<const FailedOnAll*>(&error);
    return group_ == nullptr || (all != nullptr && all->ranks == group_->size());
  }

  // Overflow during evaluation is reported, kept in overflow_ and does not affect training:
  // read_back() clears it.
  std::optional<Evaluation> evaluate(Evaluator& evaluator, const EvalMoment& at,
                                     const EvalWatch& watch) {
    const auto told = [&] {
      p_.model.read_back(p_.on);
      wait(p_.on);
      if (group_ != nullptr) p_.model.gather_results(*group_);
      overflow_ = named(p_.model.not_finite_operand());
      if (overflow_.empty()) return;
      p_.recorder.not_finite_evaluation(at.steps_done, evaluator.task(), overflow_);
    };
    energy_.pause();
    doing("evaluation", Pace::kSlow);
    try {
      std::optional<Evaluation> evaluation = evaluator.evaluate(p_.on, p_.model, at, watch);
      told();
      return evaluation;
    } catch (const UserError& error) {
      if (failed_in_step(error)) told();
      throw;
    }
  }

  // The loss of the initial weights, the first point of the curve.
  void validate_start() {
    if (done_ > 0 || !p_.config.eval.at_start || p_.evaluators.empty()) return;
    Evaluator& validation = *p_.evaluators.front();
    if (recorded(0, validation)) return;
    const auto start = Clock::now();
    p_.recorder.evaluating(0, "initial weights", 0, 0);
    record(validation, 0, *evaluate(validation, moment(0), {}), start);
  }

  Target validate() {
    if (!validated(done_)) return Target::kNotReached;
    const auto start = Clock::now();
    Evaluator& validation = *p_.evaluators.front();
    const Evaluation evaluation = *evaluate(validation, moment(done_), {});
    record(validation, done_, evaluation, start);
    const double loss = loss_of(evaluation);
    validation_loss_ = loss;
    best_.validated(done_, loss);
    for (const EvalResult& r : evaluation.results) {
      if (r.metric == "loss_nats") result_.val_loss_nats = r.value;
      if (r.metric == "bits_per_byte") result_.val_bits_per_byte = r.value;
    }
    return reaches_target(loss) ? Target::kReached : Target::kNotReached;
  }

  // The step that is now the last one was done by a process that was to do more, and stopped.
  void validate_late() {
    if (p_.evaluators.empty()) return;
    if (recorded(done_, *p_.evaluators.front())) {
      validation_loss_ = of_first_rank(group_, p_.recorder.validation_loss(done_).value_or(0));
      return;
    }
    p_.recorder.times(done_, seconds_before_ + train_seconds_, energy_.total());
    validate();
    best_.saved();
  }

  // True if the run was already stopped by its target and is started again, perhaps with other
  // steps to validate.
  bool reached_before() {
    if (p_.config.run.target_loss <= 0) return false;
    const double known =
        of_first_rank(group_, p_.recorder.validation_loss(done_).value_or(std::nan("")));
    if (!std::isnan(known)) return reaches_target(known);
    if (!validated(done_)) return false;
    return reaches_target(loss_of(*evaluate(*p_.evaluators.front(), moment(done_), {})));
  }

  // Runs the evaluators that are due, except validation and those already recorded.
  Measured measure(const EvalMoment& at) {
    for (size_t i = 1; i < p_.evaluators.size(); ++i) {
      Evaluator& evaluator = *p_.evaluators[i];
      if (!evaluator.due(at) || recorded(at.steps_done, evaluator)) continue;
      const auto start = Clock::now();
      const EvalWatch watch{.progress =
                                [&](const std::string& what, double share) {
                                  p_.recorder.evaluating(done_, what, share, seconds_since(start));
                                },
                            .interrupted = p_.stop_requested};
      try {
        const std::optional<Evaluation> done = evaluate(evaluator, at, watch);
        if (!done) return Measured::kNotAll;
        record(evaluator, done_, *done, start);
      } catch (const UserError& error) {  // a failed evaluation does not end training
        if (!failed_in_step(error)) throw;
        p_.recorder.no_evaluation(done_, evaluator.task(), error.what());
      }
    }
    return Measured::kAll;
  }

  void save() { record_checkpoint(write_checkpoint(keep())); }

  Checkpoints::Keep keep() const {
    return milestone() ? Checkpoints::Keep::kMilestone : Checkpoints::Keep::kRolling;
  }

  // Telemetry or files that cannot be written, after which try_to_save() goes on, fail on all
  // ranks.
  std::string write_checkpoint(Checkpoints::Keep keep) {
    energy_.pause();
    const auto start = Clock::now();
    doing("saving a checkpoint", Pace::kSlow);
    flush_telemetry();  // it must not be older than the checkpoint
    const TrainingState state = state_to_save(
        p_, {.steps_done = done_,
             .last_probe = routers_.last_probe(),
             .train_s = seconds_before_ + train_seconds_,
             .energy = energy_.total(),
             .best = best_.so_far(),
             .schedule_share = trainer_.schedule().share(std::max<int64_t>(0, done_ - 1))});
    const std::string folder = p_.checkpoints.save_slices(state, model_slices_to_save(p_),
                                                          p_.optimizer.slices(), keep, p_.on);
    best_.saved();
    saved_ = done_;
    saved_at_ = Clock::now();
    save_seconds_ = seconds_since(start);
    other_.saved(save_seconds_);
    return folder;
  }

  void flush_telemetry() {
    const auto flush = [&] {
      p_.recorder.flush();
      return std::string();
    };
    if (group_ != nullptr) {
      on_first_rank(*group_, flush);
    } else {
      flush();
    }
  }

  void record_checkpoint(const std::string& folder) {
    p_.recorder.checkpoint(done_, folder, save_seconds_);
  }

  // A checkpoint that only the clock asked for: without it nothing is lost yet, so a full disk does
  // not end the run here.
  void try_to_save() {
    std::string folder;
    try {
      folder = write_checkpoint(p_.config.run.checkpoint_every > 0 ? Checkpoints::Keep::kByTime
                                                                   : Checkpoints::Keep::kRolling);
    } catch (const UserError& error) {
      saved_at_ = Clock::now();
      p_.recorder.no_checkpoint(done_, error.what());
      return;
    }
    record_checkpoint(folder);
  }

  // "blocks.1.attn.qkv, fprop.input (attention, block 1, mxfp8): its largest magnitude is inf"
  static std::string named(const NotFiniteOperand& first) {
    if (first.operand == nullptr) return "";
    const QuantisedOperandState& o = *first.operand;
    return strprintf("%s, %s (%s, block %ld, %s): its largest magnitude is %g", o.weight.c_str(),
                     o.operand.c_str(), o.role.c_str(), long(o.layer), o.format.c_str(),
                     unsigned_nan(double(first.amax)));
  }

  // The state after such a step is useless, so no checkpoint is saved.
  RunResult stop_non_finite(const StepStats& stats) {
    result_.why = named(stats.not_finite_operand);
    std::string detail = strprintf("loss %g, gradient norm %g, %ld gradient elements not finite",
                                   unsigned_nan(stats.loss), unsigned_nan(stats.gradient_norm),
                                   long(stats.non_finite));
    if (!result_.why.empty()) detail += "; " + result_.why;
    p_.recorder.event(done_, "non_finite", detail);
    return close(RunEnd::kNonFinite);
  }

  bool validation_is_finite() const { return std::isfinite(validation_loss_); }

  // No step follows that would find what the last update did. As above, without a checkpoint; but
  // where a quantised operand is not finite in the evaluation, the weights may be good in another
  // recipe, and are kept beside the checkpoint before.
  RunResult stop_without_loss() {
    result_.why = "the validation loss is NaN or infinite";
    if (!overflow_.empty()) result_.why += ": " + overflow_;
    if (of_first_rank(group_, !overflow_.empty()) && saved_ != done_) {
      record_checkpoint(write_checkpoint(Checkpoints::Keep::kMilestone));
    }
    p_.recorder.event(done_, run_end_name(RunEnd::kNonFinite), result_.why);
    return close(RunEnd::kNonFinite);
  }

  // After its last step a run is complete, even if its routers collapsed.
  bool collapsed() { return done_ < steps_ && of_first_rank(group_, routers_.guard().holds()); }

  RunResult stop_collapsed() {
    result_.why = routers_.guard().because();
    p_.recorder.event(done_, run_end_name(RunEnd::kCollapseStop), result_.why);
    return finish(RunEnd::kCollapseStop);
  }

  RunResult finish(RunEnd end) {
    if (saved_ != done_) save();
    return close(end);
  }

  // The end of a run that no step follows.
  RunResult complete(RunEnd end) {
    if (saved_ != done_) save();
    validate_late();
    if (!validation_is_finite()) return stop_without_loss();
    EvalMoment now = moment(done_);
    now.last = true;
    return close(measure(now) == Measured::kAll ? end : RunEnd::kInterrupted);
  }

  RunResult close(RunEnd end) {
    doing("the end of the run", Pace::kSlow);
    result_.end = end;
    result_.steps_done = done_;
    result_.tokens = done_ * p_.config.run.batch_tokens;
    if (steps_here_ > 0) {
      result_.tokens_per_s =
          double(steps_here_ * p_.config.run.batch_tokens) / std::max(train_seconds_, 1e-9);
    }
    p_.recorder.event(done_, "end", run_end_name(end));
    return result_;
  }

  RunParts& p_;
  Trainer trainer_;
  Group* const group_;  // null: one rank
  RouterTelemetry routers_;
  const int64_t steps_;
  int64_t done_;
  int64_t saved_;  // steps done when the newest checkpoint was written
  Clock::time_point saved_at_ = Clock::now();
  double save_seconds_ = 0;  // of the newest checkpoint
  int64_t same_until_;       // step after which all ranks were seen to have the same parameters
  BestCheckpoint best_;
  OtherWork other_;
  double validation_loss_ = 0;  // of the last step that was validated; 0 before
  std::string overflow_;        // of the last evaluation: the first operand that is not finite
  int64_t steps_here_ = 0;
  double seconds_before_;     // training seconds of earlier processes
  double train_seconds_ = 0;  // training seconds of this process
  TrainingEnergy energy_;
  RunResult result_;
};

}  // namespace

const char* run_end_name(RunEnd end) {
  switch (end) {
    case RunEnd::kSteps:
      return "steps";
    case RunEnd::kTargetLoss:
      return "target_loss";
    case RunEnd::kNonFinite:
      return "non_finite";
    case RunEnd::kCollapseStop:
      return "collapse_stop";
    case RunEnd::kInterrupted:
      return "interrupted";
    case RunEnd::kStopAfter:
      return "stop_after";
  }
  return "?";
}

bool stopped_by_guard(const std::string& end_name) {
  return end_name == run_end_name(RunEnd::kNonFinite) ||
         end_name == run_end_name(RunEnd::kCollapseStop);
}

RunResult run(RunParts& parts, const RunStart& start) {
  return Run(parts, start).train();
}

}  // namespace assay
