#include "lab/live/live_page.h"

#include "lab/page/page.h"

namespace assay {
namespace {

// What the polling script starts from: it then asks only for what changed since.
std::string script_of(const LiveData& data) {
  nlohmann::ordered_json start;
  start["etag"] = data.etag;
  start["live"] = data.live;
  return "const liveStart = " + script_json(start) + ";\n" + std::string(report_files().live);
}

std::string waiting_page(const LiveData& data, const std::string& title) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>" +
         escaped_html(title) + "</title>\n<style>\n" + std::string(report_files().css) +
         "</style>\n</head>\n<body>\n<header><h1>" + escaped_html(title) +
         "</h1></header>\n<script>\n" + script_of(data) + "</script>\n</body>\n</html>\n";
}

}  // namespace

std::string live_page(const LiveData& data, const std::string& title) {
  if (data.report.is_null()) return waiting_page(data, title);
  return page_html(data.report, title, report_files().plotly, script_of(data));
}

std::string live_page_policy() {
  const std::string link = report_files().plotly.empty() ? " https://cdn.plot.ly" : "";
  return "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src "
         "'unsafe-inline'" +
         link + "; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
}

}  // namespace assay
