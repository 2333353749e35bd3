#include "lab/matrix/gap.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/runs/markdown_table.h"
#include "lab/runs/run_measures.h"

namespace assay {
namespace {

// Shares at which the first row's runs were evaluated, ascending.
std::vector<double> evaluated_shares(const SummaryRow& row) {
  std::vector<double> shares;
  if (row.runs.runs.empty()) return shares;
  const RunRecord& run = *row.runs.runs.front();
  for (const EvalValue& v : run.val_loss_nats) {
    const double share = double(v.step) / double(run.config.run.steps);
    if (v.step > 0 && share <= 1) shares.push_back(share);
  }
  return shares;
}

// Between two evaluations of which the later is at most a quarter later the loss is read. A chord
// lies above a convex curve in every seed, so that no interval shows it: where the loss falls to
// its limit as steps^-1/2, by 0.0016 of what is left, at twice as late by 0.015.
constexpr double kFarthest = 1.25;

struct LossAt {
  double nats = 0;
  bool interpolated = false;
};

// The validation loss at a share of run.steps: of an evaluation less than a step away (whole steps
// meet a share only nearly), else linear in the logarithm of the step between its neighbours.
// nullopt outside of the evaluations, where they are too far apart, and where the loss was not
// finite.
std::optional<LossAt> loss_at(const RunRecord& run, double share) {
  const double wanted = share * double(run.config.run.steps);
  const EvalValue *before = nullptr, *after = nullptr, *here = nullptr;
  for (const EvalValue& v : run.val_loss_nats) {
    if (v.step == 0) continue;  // the weights as they were drawn
    const double distance = std::abs(double(v.step) - wanted);
    const bool is_here =
        distance < 1 && (!here || distance < std::abs(double(here->step) - wanted));
    if (is_here) here = &v;
    if (double(v.step) <= wanted) before = &v;
    if (double(v.step) > wanted && !after) after = &v;
  }
  if (here) {
    const auto loss = finite_value(*here);
    return loss ? std::optional(LossAt{.nats = *loss}) : std::nullopt;
  }
  if (!before || !after || double(after->step) > kFarthest * double(before->step)) {
    return std::nullopt;
  }
  const auto from = finite_value(*before), to = finite_value(*after);
  if (!from || !to) return std::nullopt;
  const double part = std::log(wanted / double(before->step)) /
                      std::log(double(after->step) / double(before->step));
  return LossAt{.nats = *from + part * (*to - *from), .interpolated = true};
}

struct LossesAt {
  SeedValues values = {};
  bool interpolated = false;  // in any run
};

LossesAt losses_at(const SummaryRow& row, double share) {
  LossesAt losses;
  losses.values = values_of(row.runs, [&](const RunRecord& run) -> std::optional<double> {
    const std::optional<LossAt> loss = loss_at(run, share);
    if (!loss) return std::nullopt;
    losses.interpolated |= loss->interpolated;
    return loss->nats;
  });
  return losses;
}

GapCurve curve_of(const SummaryRow& row, const SummaryRow& first) {
  GapCurve curve{.row = &row, .points = {}, .trend = {}};
  for (const double share : evaluated_shares(first)) {
    const LossesAt row_losses = losses_at(row, share), first_losses = losses_at(first, share);
    const SeedValues &of_row = row_losses.values, &of_first = first_losses.values;
    if (of_row.size() < row.runs.runs.size() || of_first.size() < first.runs.runs.size()) continue;
    if (const auto difference = paired_difference(of_row, of_first)) {
      const bool interpolated = row_losses.interpolated || first_losses.interpolated;
      curve.points.push_back(
          {.share = share, .gap = difference->summary, .interpolated = interpolated});
    }
  }
  const auto trend = find_run_measure("val_loss_trend")->of;
  const auto difference =
      paired_difference(values_of(row.runs, trend), values_of(first.runs, trend));
  if (difference) curve.trend = difference->summary;
  return curve;
}

// "+0.0123 ± 0.0040": mean and half of its 95% interval; "+0.0123~" if interpolated.
std::string gap_text(const Summary& gap, bool interpolated = false) {
  std::string text = strprintf("%+.4f%s", gap.mean, interpolated ? "~" : "");
  if (gap.interval95) text += strprintf(" ± %.4f", gap.interval95->high - gap.mean);
  return text;
}

// The points nearest to eight shares of the run, ascending, each once.
std::vector<size_t> shown_points(const std::vector<GapPoint>& points) {
  std::vector<size_t> shown;
  for (const double wanted : {0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0}) {
    const auto nearest =
        std::min_element(points.begin(), points.end(), [&](const GapPoint& a, const GapPoint& b) {
          return std::abs(a.share - wanted) < std::abs(b.share - wanted);
        });
    const size_t index = size_t(nearest - points.begin());
    if (shown.empty() || shown.back() != index) shown.push_back(index);
  }
  return shown;
}

const GapPoint* point_at(const GapCurve& curve, double share) {
  for (const GapPoint& point : curve.points) {
    if (point.share == share) return &point;
  }
  return nullptr;
}

std::string curve_name(const SummaryRow& row) {
  return row.cell->model + (row.cell->precision == "auto" ? "" : " " + row.cell->precision);
}

}  // namespace

std::vector<GapCurve> gap_curves(const ContractTable& table) {
  std::vector<GapCurve> curves;
  if (table.ranked_by_target()) return curves;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    GapCurve curve = curve_of(table.rows[i], table.rows.front());
    if (!curve.points.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

std::string gap_markdown(const ContractTable& table) {
  const std::vector<GapCurve> curves = gap_curves(table);
  if (curves.empty() || curves.front().points.size() < 2) return "";
  const std::vector<GapPoint>& points = curves.front().points;
  MarkdownRows rows = {{"share of the run"}};
  for (const GapCurve& curve : curves) rows[0].push_back(curve_name(*curve.row));
  for (const size_t i : shown_points(points)) {
    std::vector<std::string> row = {strprintf("%.3g%%", 100 * points[i].share)};
    for (const GapCurve& curve : curves) {
      const GapPoint* point = point_at(curve, points[i].share);
      row.push_back(point == nullptr ? "-" : gap_text(point->gap, point->interpolated));
    }
    rows.push_back(row);
  }
  std::vector<std::string> trends = {"per doubling"};
  for (const GapCurve& curve : curves) trends.push_back(curve.trend ? gap_text(*curve.trend) : "-");
  rows.push_back(trends);
  return markdown_table(rows, 1) + "\nGap over training: validation loss minus " +
         curve_name(table.rows.front()) +
         "'s at equal shares of the runs (~: the loss read between two evaluations, linear in the "
         "logarithm of the step, rather too high), nats, mean over shared seeds ± half of the 95% "
         "interval; per doubling: its slope against log2 of the tokens from a tenth of the run "
         "on.\n\n";
}

}  // namespace assay
