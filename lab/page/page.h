// Makes one self-contained HTML page from the data of a report. Style, script and Plotly.js are
// embedded in the program (lab/page/web, by CMake), so the program works from any folder and a page
// opens from disk without a network.
//
// A server of a live page sends, at first and then again and again:
//
//   const nlohmann::ordered_json data = report_data(runs, {}, NoTelemetry::kShow);
//   page_html(data, title, report_files().plotly, script)   // `script` fetches the data ...
//   script_json(data)                                       // ... which the server sends as JSON
//
// and its script hands the data to assayPage.update(data), which draws it and keeps what the reader
// chose. Runs may come and go between updates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lab/page/data.h"

namespace assay {

inline constexpr size_t kLargestPageBytes = 12'000'000;
// tools/setup.sh fetches this version.
inline constexpr const char* kPlotlyVersion = "4.1.1";

enum class Plotly {
  kInline,  // in the page; a link if the program was built without it
  kLink,    // loaded from its CDN when the page opens: a small page that needs a network
};

// Parts of the page as embedded in the program.
struct ReportFiles {
  std::string_view html, css, javascript;
  std::string_view live;    // the script of a page that updates itself (lab/live)
  std::string_view plotly;  // "" if the program was built without it
};
ReportFiles report_files();

struct ReportPage {
  std::string html;
  nlohmann::ordered_json data;
  bool plotly_inlined = false;
};

// "moe", "Report of 3 runs", "Matrix cpu".
std::string page_title(const nlohmann::ordered_json& data);

// title: "" = page_title(). A page above `largest_bytes` is made again with fewer points. UserError
// if that does not suffice.
ReportPage report_page(const std::vector<std::string>& runs, const std::string& title,
                       Plotly plotly, size_t largest_bytes = kLargestPageBytes,
                       const ReportChoices& choices = {});

// What the data of a live page may take of kLargestPageBytes.
size_t largest_data_bytes();

// The page of given data. plotly: the text of Plotly.js; "" = a link to its CDN. live_script: runs
// after the page's own script; with one, the page may fetch from the server that it came from.
std::string page_html(const nlohmann::ordered_json& data, const std::string& title,
                      std::string_view plotly, std::string_view live_script = "");
// JSON that is safe inside <script>: it has no "<". Characters that turn the order of a text are
// written out (base/text_order.h), here and in escaped_html().
std::string script_json(const nlohmann::ordered_json& data);
// Text with the special characters of HTML escaped.
std::string escaped_html(const std::string& text);

}  // namespace assay
