// assay report: one page about one run or several.
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "lab/page/page.h"
#include "tools/assay/commands.h"

namespace assay {
namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string output = "report.html", title, plotly = "inline";
  bool json = false;
};

int run_report(const Arguments& a) {
  if (a.json) {
    const auto data = report_data(a.runs, {});
    std::printf("%s\n", script_json(data).c_str());
    return kExitDone;
  }
  const std::string title = !a.title.empty() ? a.title
                            : a.runs.size() == 1
                                ? "Run report"
                                : "Report of " + std::to_string(a.runs.size()) + " runs";
  const ReportPage page =
      report_page(a.runs, title, a.plotly == "link" ? Plotly::kLink : Plotly::kInline);
  for (const std::string& warning : report_warnings(page.data)) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  write_file_atomic(a.output, page.html);
  std::printf("%s: %.1f MB, %zu run%s%s\n", a.output.c_str(), double(page.html.size()) / 1e6,
              a.runs.size(), a.runs.size() == 1 ? "" : "s",
              page.plotly_inlined ? "" : "; its charts need a network");
  if (!page.plotly_inlined && a.plotly == "inline") {
    std::fprintf(stderr,
                 "warning: this program was built without Plotly.js, so the page links to it "
                 "(bash tools/setup.sh fetches it; then build again)\n");
  }
  return kExitDone;
}

}  // namespace

void add_report_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "report", "one page about runs: curves, routers, audit, times; opens without a network");
  sub->add_option("RUN", a->runs, "directories of runs; also of one that is training")->required();
  sub->add_option("-o,--output", a->output, "the page; one that is there is replaced")
      ->capture_default_str();
  sub->add_option("--title", a->title, "heading of the page");
  sub->add_option("--plotly", a->plotly,
                  "inline: the page holds Plotly.js (4.8 MB); link: it loads it from cdn.plot.ly")
      ->check(CLI::IsMember({"inline", "link"}))
      ->capture_default_str();
  sub->add_flag("--json", a->json, "the data of the page on stdout; no page is written");
  sub->footer(
      "Examples:\n"
      "  assay report runs/moe -o moe.html\n"
      "  assay report runs/demo-*/ -o demo.html     several runs in the same charts\n"
      "docs/report.md says how to read the page.");
  commands.on_chosen(sub, [a] { return run_report(*a); });
}

}  // namespace assay
