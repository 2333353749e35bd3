#include "lab/matrix/gap.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/runs/markdown_table.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/value_at_share.h"

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

struct LossesAt {
  SeedValues values = {};
  bool interpolated = false;  // in any run
};

LossesAt losses_at(const SummaryRow& row, double share) {
  LossesAt losses;
  losses.values = values_of(row.runs, [&](const RunRecord& run) -> std::optional<double> {
    const auto loss = value_at_share(run, run.val_loss_nats, share);
    if (!loss) return std::nullopt;
    losses.interpolated |= loss->interpolated;
    return loss->value;
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
  std::vector<GapCurve> curves = gap_curves(table);
  std::erase_if(curves, [](const GapCurve& curve) { return !curve.row->is_shown; });
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
