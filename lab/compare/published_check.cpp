#include "lab/compare/published_check.h"

#include <algorithm>

#include "base/check.h"
#include "base/joined.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

void apply_rule(CheckedFigure& figure, const FigureRule& rule, const PublishedStudy& study,
                const RowOfTable* row) {
  figure.note = rule.note;
  figure.reason = rule.not_derivable;
  try {
    const PrintedFigure printed = read_figure(figure.printed);
    if (!rule.derive.is_null()) figure.derived = evaluate(rule.derive, study, row);
    if (!rule.not_derivable.empty()) {
      figure.verdict = Verdict::kNotDerivable;
    } else if (!figure.derived) {
      figure.reason = "it has neither a derivation nor a reason why there is none";
    } else {
      figure.verdict = is_same(*figure.derived, printed) ? Verdict::kSame : Verdict::kDiffers;
    }
  } catch (const UserError& e) {
    figure.verdict = Verdict::kFailed;
    figure.reason = std::string(e.what()) + "; " + e.hint();
  }
}

// The figure's own entry in `checks`, if it has one.
const PublishedFigure* own_check(const PublishedStudy& study,
                                 const std::vector<std::string>& address) {
  const auto found = std::find_if(study.checks.begin(), study.checks.end(),
                                  [&](const PublishedFigure& f) { return f.cell == address; });
  return found == study.checks.end() ? nullptr : &*found;
}

CheckedFigure checked_cell(const PublishedStudy& study, const RowOfTable& row, size_t c) {
  const PublishedTable& table = row.table;
  const PublishedColumn& column = table.columns[c];
  std::vector<std::string> keys;
  for (size_t k = 0; k < table.keys.size(); ++k) keys.push_back(cell_text(row.cells[k], nullptr));
  CheckedFigure figure{.table = table.title,
                       .what = joined(keys, ", ") + ": " + column.key,
                       .column = column.key,
                       .where = "",
                       .printed = cell_text(row.cells[table.keys.size() + c], &column),
                       .unit = column.unit};
  std::vector<std::string> address = keys;
  address.insert(address.begin(), table.title);
  address.push_back(column.key);
  const PublishedFigure* own = own_check(study, address);
  if (own != nullptr && !own->printed.empty()) figure.printed = own->printed;
  if (own != nullptr && !own->unit.empty()) figure.unit = own->unit;
  apply_rule(figure, own != nullptr ? own->rule : column.rule, study, &row);
  return figure;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kDiffers:
      return "differs";
    case Verdict::kNotDerivable:
      return "not derivable";
    case Verdict::kFailed:
      break;
  }
  return "failed";
}

std::vector<CheckedFigure> check_published(const PublishedStudy& study) {
  std::vector<CheckedFigure> figures;
  for (const PublishedTable& table : study.tables)
    for (size_t c = 0; c < table.columns.size(); ++c)
      for (const auto& cells : table.rows)
        if (cells[table.keys.size() + c].is_number())
          figures.push_back(checked_cell(study, {table, cells}, c));
  for (const PublishedFigure& check : study.checks) {
    if (!check.cell.empty()) continue;
    CheckedFigure figure{.table = "",
                         .what = check.what,
                         .column = "",
                         .where = check.where,
                         .printed = check.printed,
                         .unit = check.unit};
    apply_rule(figure, check.rule, study, nullptr);
    figures.push_back(figure);
  }
  return figures;
}

int64_t count_of(const std::vector<CheckedFigure>& figures, Verdict verdict) {
  return std::count_if(figures.begin(), figures.end(),
                       [&](const CheckedFigure& f) { return f.verdict == verdict; });
}

std::string count_line(const std::vector<CheckedFigure>& figures) {
  const auto count = [&](Verdict v) { return long(count_of(figures, v)); };
  std::string text = strprintf("%ld same, %ld differ, %ld cannot be derived", count(Verdict::kSame),
                               count(Verdict::kDiffers), count(Verdict::kNotDerivable));
  if (count(Verdict::kFailed) > 0) text += strprintf(", %ld failed", count(Verdict::kFailed));
  return text;
}

}  // namespace assay
