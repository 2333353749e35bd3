// How uneven the loads of a layer are at single logged steps, beside the sums over a window of
// them: experts that take turns are even over the window and uneven at every step. Rule and
// formula: docs/router.md (restless).
#pragma once

#include <cstdint>
#include <optional>

#include "engine/telemetry/reader.h"

namespace assay {

// Medians over the last W logged steps, so that a part of them (a collapse that is over) does not
// decide. cv, floor and swing are percent of the mean load.
struct StepLoads {
  double cv = 0, cv_floor = 0;  // cv of a step, and what sampling alone gives at its tokens
  double max_load_norm = 0;     // K max_load of a step
  // sqrt(cv^2 - cv_floor^2 - window_cv^2): how far an expert's load in a step is from its own mean
  // over the window, without what sampling gives. 0 where the others explain the whole cv.
  double swing = 0;
  // Of the choices on fixed tokens, what stays from one probe to the next (a share), and what
  // changes at the probes of the window, added up. Absent if the window has no probe.
  std::optional<double> overlap = {}, changed = {};
};

// The columns of router_layer that step_loads() reads.
inline constexpr const char* kStepLoadColumns[] = {"cv", "cv_floor", "max_load_norm", "overlap"};

// curves: of one layer. window_cv: percent, of the loads over the last `window` logged steps
// together. nullopt if a column other than overlap has no value.
std::optional<StepLoads> step_loads(const RouterCurves& curves, int64_t window, double window_cv);

// True if the experts of a layer take turns: at single steps they are uneven by as much as makes a
// window uneven, the window does not show it, and it is not that batches differ while the router
// keeps its choices. window_max_load_norm: K max_load of the window.
bool is_restless(const StepLoads& steps, double window_max_load_norm, int64_t experts,
                 int64_t top_k);
// The swing from which loads are restless: kRestlessSwing of the mean load, or half of the ceiling
// of cv where that is less (K > E / 2). Percent.
double restless_swing(int64_t experts, int64_t top_k);

inline constexpr double kRestlessSwing = 50;    // percent of the mean load
inline constexpr double kRestlessExcess = 0.5;  // of the way from even loads to the ceiling
// changed / swing from which on the router may take turns. Turns move swing / sqrt(pi) = 0.56 swing
// of the assignments from one step to a distant one, if loads are normally distributed: with less
// than this the router makes less than half of that, and what batches hold makes the rest. Nothing
// moves more than all assignments, which is 0.56 swing at a swing of sqrt(pi) = 1.77: a larger one
// counts as that.
inline constexpr double kChangedChoices = 0.25;
inline constexpr double kLargestTurns = 1.772453850905516;  // of the mean load: sqrt(pi)
// By that rule, the least share of the choices that changes where turns make the swing (percent).
double least_change(double swing);

}  // namespace assay
