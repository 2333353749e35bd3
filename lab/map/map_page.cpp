#include "lab/map/map_page.h"

#include "base/check.h"
#include "lab/map/picture.h"
#include "lab/page/page.h"

namespace assay {
namespace {

// Okabe and Ito's palette, as the report page has it (lab/page/web/data.js).
constexpr const char* kLight[] = {"#0072b2", "#d55e00", "#008f68", "#b2568f",
                                  "#b07800", "#3a9bd3", "#5c646e"};
constexpr const char* kDark[] = {"#4fa8e8", "#ff8f4d", "#2fcf9f", "#ea9cca",
                                 "#f0b93c", "#9ad6f7", "#aab3bd"};

std::string colours(const char* const (&palette)[7], size_t models) {
  std::string css;
  for (size_t i = 0; i < models; ++i) css += strprintf(".m%zu{--run:%s}", i, palette[i % 7]);
  return css;
}

std::string style(size_t models) {
  return std::string(report_files().css) + colours(kLight, models) +
         "\n@media (prefers-color-scheme: dark){" + colours(kDark, models) + "}\n" +
         "svg{display:block;width:100%;height:auto;margin-top:8px}"
         "svg text{font-size:12px;fill:var(--soft)}svg .tick{font-size:11.5px}"
         ".grid{stroke:var(--grid)}.zero{stroke:var(--soft);stroke-dasharray:3 3}"
         ".curve{fill:none;stroke:var(--run);stroke-width:1.4;stroke-opacity:.55}"
         ".point{fill:var(--run)}.ring{fill:var(--card);stroke:var(--run);stroke-width:2}"
         ".bar{stroke:var(--run);stroke-width:2}.band{fill:var(--run);fill-opacity:.1}"
         ".turn{stroke:var(--run);stroke-width:1.4;stroke-dasharray:5 4}"
         ".legend{display:flex;flex-wrap:wrap;gap:6px 18px;font-size:14px;margin:0 0 10px}"
         ".legend span{display:inline-flex;align-items:center;gap:7px}"
         "th,td{text-align:left}td.words,th.words{white-space:normal}.panel{margin-bottom:14px}\n";
}

using Row = std::vector<std::string>;

// The first row has the heads; the first columns are not broken into lines.
std::string table(const std::vector<Row>& rows) {
  std::string html = "<div class=\"panel\"><div class=\"scroller\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string tag = i == 0 ? "th" : "td";
    html += "<tr>";
    for (size_t c = 0; c < rows[i].size(); ++c) {
      html += "<" + tag + (c < 2 ? "" : " class=\"words\"") + ">" +
              escaped_html(rows[i][c].empty() ? "–" : rows[i][c]) + "</" + tag + ">";
    }
    html += "</tr>\n";
  }
  return html + "</table></div></div>\n";
}

std::vector<Row> answer_rows(const ContractMap& map) {
  std::vector<Row> rows = {{"axis", "models", "ahead", "the order turns at"}};
  for (const MapAxis& axis : map.axes) {
    const std::string title = words_of(axis.axis).title;
    if (!axis.absent.empty()) rows.push_back({title, "", "", axis.absent});
    if (!axis.absent.empty()) continue;
    for (const MapPair& pair : axis.pairs) {
      const bool compared = pair.absent.empty();
      rows.push_back({&pair == &axis.pairs.front() ? title : " ",
                      map.set.models[pair.first].name + ", " + map.set.models[pair.second].name,
                      compared ? budgets_text(map, pair) : "",
                      compared ? crossing_text(map, axis.axis, pair) : pair.absent});
    }
  }
  return rows;
}

std::string legend(const ContractMap& map) {
  std::string items;
  for (size_t i = 0; i < map.set.models.size(); ++i) {
    items += strprintf("<span><i class=\"swatch m%zu\"></i>", i) +
             escaped_html(map.set.models[i].name) + "</span>";
  }
  return "<div class=\"legend\">" + items + "</div>\n";
}

std::string figure(const ContractMap& map, const MapAxis& axis) {
  std::string notes;
  for (const MapPair& pair : axis.pairs) {
    if (pair.first == 0 && !pair.absent.empty()) {
      notes += "<p class=\"note\">" + escaped_html(pair.absent) + "</p>\n";
    }
    for (const std::string& note : pair.notes) {
      notes += "<p class=\"note\">" + escaped_html(note) + "</p>\n";
    }
  }
  return strprintf("<figure class=\"chart\" id=\"axis-%s\"><h3>", words_of(axis.axis).name) +
         escaped_html(words_of(axis.axis).title) + "</h3>\n" + axis_picture(map, axis) + notes +
         "</figure>\n";
}

std::string list(const std::string& heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string items;
  for (const std::string& line : lines) items += "<li>" + escaped_html(line) + "</li>\n";
  return "<h2>" + heading + "</h2>\n<ul class=\"soft\">\n" + items + "</ul>\n";
}

}  // namespace

std::string map_page(const ContractMap& map, const std::vector<MapClaimResult>& claims,
                     const std::string& title) {
  std::string figures;
  for (const MapAxis& axis : map.axes) {
    if (axis.absent.empty()) figures += figure(map, axis);
  }
  std::vector<std::string> confounds, left_out;
  for (const Confound& confound : map.set.confounds) confounds.push_back(confound.text);
  for (const SkippedRun& run : map.set.left_out) left_out.push_back(run.run + ": " + run.reason);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; img-src data:\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>" +
         escaped_html(title) + "</title>\n<style>\n" + style(map.set.models.size()) +
         "</style>\n</head>\n<body>\n<header>\n<h1>" + escaped_html(title) + "</h1>\n" +
         legend(map) + table(answer_rows(map)) +
         (claims.empty() ? "" : table(map_claim_rows(claims))) + table(model_rows(map)) +
         "</header>\n<main>\n<p class=\"how\">Over ~: the model behind has no endpoint within 1%; "
         "its value is read between two, which is rather too bad, and it may be behind for that "
         "alone. "
         "Pictures, above: " +
         escaped_html(measure_title(map.measure)) +
         " of every endpoint, a line per seed; below: the difference to " +
         escaped_html(map.set.models.front().name) +
         " at each budget, seed by seed, with Student's 95% interval; a ring where one of the two "
         "has no endpoint and is read between two. A dashed line is where the order turns, its "
         "band "
         "the interval over the seeds.</p>\n<div class=\"charts\">\n" +
         figures + "</div>\n" + list("Confounds", confounds) + list("Notes", map.set.notes) +
         list("Left out", left_out) +
         "</main>\n<footer>Made by assay map.</footer>\n</body>\n</html>\n";
}

}  // namespace assay
