// Checked figures as text and as JSON.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lab/compare/published_check.h"
#include "lab/runs/text_table.h"
#include "models/audit/model_table.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGroupFrom = 1e5;  // whole numbers from here on have thousands separators

std::string decimal_text(double value, int64_t decimals) {
  if (decimals == 0 && std::abs(value) >= kGroupFrom) return grouped(std::llround(value));
  return strprintf("%.*f", int(decimals), value);
}

// With the digits that were printed, and how far rounded inputs leave it open.
std::string derived_text(const CheckedFigure& figure) {
  if (!figure.derived) return "";
  const PrintedFigure printed = read_figure(figure.printed);
  const double open = (figure.derived->high - figure.derived->low) / 2;
  const std::string text = decimal_text(figure.derived->value, printed.decimals);
  return open < printed.half_unit() ? text : text + " +-" + decimal_text(open, printed.decimals);
}

std::string printed_text(const CheckedFigure& figure) {
  if (figure.table.empty() || figure.printed.find_first_of(".~,") != std::string::npos)
    return figure.printed;
  return decimal_text(read_figure(figure.printed).value, 0);
}

std::string with_unit(const std::string& what, const std::string& unit) {
  return unit.empty() ? what : what + ", " + unit;
}

std::string verdict_text(const CheckedFigure& figure) {
  const std::string name = verdict_name(figure.verdict);
  return figure.verdict == Verdict::kNotDerivable ? name + ": " + figure.reason : name;
}

// Figures of one column and without any derived value stand in one line.
bool share_a_line(const CheckedFigure& a, const CheckedFigure& b) {
  return a.verdict == Verdict::kNotDerivable && b.verdict == a.verdict && !a.derived &&
         !b.derived && !a.column.empty() && a.column == b.column && a.reason == b.reason;
}

// One table of the study, or its text.
std::string section_text(const std::string& title, const std::vector<CheckedFigure>& figures) {
  TextTable table({"figure", "published", "derived", "verdict"});
  std::vector<std::string> notes;
  for (size_t i = 0; i < figures.size();) {
    const CheckedFigure& figure = figures[i];
    size_t end = i + 1;
    while (end < figures.size() && share_a_line(figure, figures[end])) ++end;
    if (end - i > 1) {
      table.add({with_unit(figure.column, figure.unit), strprintf("%zu figures", end - i), "",
                 verdict_text(figure)});
    } else {
      const std::string what =
          figure.where.empty() ? figure.what : figure.what + " (" + figure.where + ")";
      table.add({with_unit(what, figure.unit), printed_text(figure), derived_text(figure),
                 verdict_text(figure)});
    }
    const bool failed = figure.verdict == Verdict::kFailed;
    const std::string note = failed ? "failed: " + figure.reason : figure.note;
    if (!note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(note);
    i = end;
  }
  std::string text = "\n" + title + "\n" + table.text();
  for (const std::string& note : notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace

std::string check_text(const PublishedStudy& study, const std::vector<CheckedFigure>& figures) {
  std::string text = "published " + study.name + ": " + study.title + "\n";
  for (size_t i = 0; i < figures.size();) {
    size_t end = i + 1;
    while (end < figures.size() && figures[end].table == figures[i].table) ++end;
    const std::string& table = figures[i].table;
    text += section_text(table.empty() ? "in the text" : table,
                         {figures.begin() + int64_t(i), figures.begin() + int64_t(end)});
    i = end;
  }
  return text + "\n" + study.name + ": " + count_line(figures) + "\n";
}

Json check_json(const std::vector<CheckedFigure>& figures) {
  Json json;
  json["same"] = count_of(figures, Verdict::kSame);
  json["differ"] = count_of(figures, Verdict::kDiffers);
  json["not_derivable"] = count_of(figures, Verdict::kNotDerivable);
  json["failed"] = count_of(figures, Verdict::kFailed);
  json["figures"] = Json::array();
  for (const CheckedFigure& figure : figures) {
    Json one;
    one["table"] = figure.table.empty() ? Json() : Json(figure.table);
    one["what"] = figure.what;
    one["where"] = figure.where.empty() ? Json() : Json(figure.where);
    one["published"] = figure.printed;
    one["unit"] = figure.unit;
    one["verdict"] = verdict_name(figure.verdict);
    one["derived"] = figure.derived ? Json(figure.derived->value) : Json();
    one["low"] = figure.derived ? Json(figure.derived->low) : Json();
    one["high"] = figure.derived ? Json(figure.derived->high) : Json();
    one["reason"] = figure.reason.empty() ? Json() : Json(figure.reason);
    one["note"] = figure.note.empty() ? Json() : Json(figure.note);
    json["figures"].push_back(one);
  }
  return json;
}

}  // namespace assay
