#include "lab/page/page.h"

#include <map>

#include "base/check.h"
#include "base/text_order.h"
#include "data/json_text.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// The content security policy: the page may load nothing except `scripts` and, if it is live, what
// its own server sends.
std::string content_policy(const std::string& scripts, bool live) {
  return "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src "
         "'unsafe-inline'" +
         scripts + (live ? "; connect-src 'self'" : "");
}

// Of the bytes that the data takes in the page, the share that fits; below 0 if even a page without
// data does not.
double share_that_fits(const ReportPage& page, size_t largest_bytes) {
  const auto data = double(script_json(page.data).size());
  return (double(largest_bytes) - (double(page.html.size()) - data)) / data;
}

[[noreturn]] void throw_too_large(const ReportPage& page, size_t largest_bytes) {
  const bool is_matrix = !page.data["matrix"].is_null();
  throw UserError(
      strprintf("a page of %zu runs takes %.1f MB, more than %.1f MB", page.data["runs"].size(),
                double(page.html.size()) / 1e6, double(largest_bytes) / 1e6),
      std::string(is_matrix ? "give some of the matrix's runs, by their folders"
                            : "give fewer runs") +
          (page.plotly_inlined ? ", or leave Plotly.js out: --plotly link" : ""));
}

std::string plotly_link() {
  return std::string("https://cdn.plot.ly/plotly-") + kPlotlyVersion + ".min.js";
}

}  // namespace

std::string script_json(const Json& data) {
  const std::string json = with_turns_shown(json_text(data), "\\\\");
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string escaped_html(const std::string& text) {
  static const std::map<char, const char*> special = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string escaped;
  for (const char c : with_turns_shown(text)) {
    const auto found = special.find(c);
    if (found == special.end()) {
      escaped += c;
    } else {
      escaped += found->second;
    }
  }
  return escaped;
}

std::string page_html(const Json& data, const std::string& title, std::string_view plotly,
                      std::string_view live_script) {
  const ReportFiles files = report_files();
  const bool linked = plotly.empty();
  std::map<std::string, std::string> parts;
  parts["title"] = escaped_html(title);
  parts["policy"] = content_policy(linked ? " https://cdn.plot.ly" : "", !live_script.empty());
  parts["style"] = files.css;
  parts["data"] = script_json(data);
  parts["plotly"] = linked ? "<script src=\"" + plotly_link() + "\"></script>"
                           : "<script>" + std::string(plotly) + "</script>";
  parts["plotly_note"] =
      linked ? "<p class=\"warning\" id=\"plotly-link\">The charts of this page need a network: "
               "they load Plotly.js " +
                   std::string(kPlotlyVersion) + " from cdn.plot.ly.</p>"
             : "";
  parts["script"] = files.javascript;
  parts["live_script"] =
      live_script.empty() ? "" : "<script>\n" + std::string(live_script) + "\n</script>";

  std::string page;
  std::string_view rest = files.html;
  while (true) {
    const size_t from = rest.find("{{"), to = rest.find("}}");
    if (from == std::string_view::npos) break;
    CHECK(to != std::string_view::npos && to > from, "page.html: {{ at %zu is not closed", from);
    const std::string name(rest.substr(from + 2, to - from - 2));
    CHECK(parts.contains(name), "page.html: there is no part {{%s}}", name.c_str());
    page += rest.substr(0, from);
    page += parts[name];
    rest.remove_prefix(to + 2);
  }
  page += rest;
  return page;
}

std::string page_title(const Json& data) {
  if (!data["matrix"].is_null()) return "Matrix " + data["matrix"]["matrix"].get<std::string>();
  const size_t runs = data["runs"].size();
  return runs == 1 ? data["runs"][0]["label"].get<std::string>()
                   : "Report of " + std::to_string(runs) + " runs";
}

size_t largest_data_bytes() {
  const ReportFiles files = report_files();
  return kLargestPageBytes - page_html(Json::object(), "", files.plotly, files.live).size();
}

ReportPage report_page(const std::vector<std::string>& runs, const std::string& title,
                       Plotly plotly, size_t largest_bytes, const ReportChoices& choices) {
  const std::string_view inlined = plotly == Plotly::kInline ? report_files().plotly : "";
  ReportLimits limits;
  while (true) {
    ReportPage page{.html = {},
                    .data = report_data(runs, limits, NoTelemetry::kRefuse, choices),
                    .plotly_inlined = !inlined.empty()};
    page.html = page_html(page.data, title.empty() ? page_title(page.data) : title, inlined);
    if (page.html.size() <= largest_bytes) return page;
    if (!limits.shrink(share_that_fits(page, largest_bytes))) throw_too_large(page, largest_bytes);
  }
}

}  // namespace assay
