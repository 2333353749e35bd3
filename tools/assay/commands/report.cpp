// assay report: writes one HTML page about one or more runs, or about a matrix.
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "lab/page/page.h"
#include "tools/assay/commands.h"
#include "tools/assay/run_paths.h"

namespace assay {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string output = "report.html", title, plotly = "inline";
  ReportChoices choices;
  bool json = false;
};

int run_report(const ReportArguments& a) {
  require_contract_kind(a.choices.contract);
  if (a.json) {
    const auto data = report_data(a.runs, {}, NoTelemetry::kRefuse, a.choices);
    for (const std::string& warning : report_warnings(data)) {
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
    }
    std::printf("%s\n", script_json(data).c_str());
    return kExitDone;
  }
  const ReportPage page =
      report_page(a.runs, a.title, a.plotly == "link" ? Plotly::kLink : Plotly::kInline,
                  kLargestPageBytes, a.choices);
  for (const std::string& warning : report_warnings(page.data)) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  write_file_atomic(a.output, page.html);
  const size_t runs = page.data["runs"].size();
  std::printf("%s: %.1f MB, %zu run%s%s\n", a.output.c_str(), double(page.html.size()) / 1e6, runs,
              runs == 1 ? "" : "s", page.plotly_inlined ? "" : "; its charts need a network");
  if (!page.plotly_inlined && a.plotly == "inline") {
    std::fprintf(stderr,
                 "warning: this program was built without Plotly.js, so the page links to it "
                 "(to include it, run bash tools/setup.sh and build again)\n");
  }
  return kExitDone;
}

}  // namespace

void add_report_command(Commands& commands) {
  auto a = std::make_shared<ReportArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "report",
      "write one page about runs or a matrix: who is ahead, curves, routers, audit, times");
  sub->add_option("RUN", a->runs,
                  "directories of runs, finished or still training, or one folder of a matrix")
      ->required();
  CLI::Option* output =
      sub->add_option("-o,--output", a->output,
                      "HTML file to write (default: report.html); an existing file is replaced");
  CLI::Option* title =
      sub->add_option("--title", a->title, "heading of the page (default: what it is about)");
  sub->add_option("--anchor", a->choices.anchor,
                  "log of a public run (modded-nanogpt or llm.c), dotted in the loss chart; "
                  "bash tools/get_anchor_log.sh fetches one");
  add_contract_option(sub, a->choices.contract);
  CLI::Option* plotly =
      sub->add_option("--plotly", a->plotly,
                      "inline: the page contains Plotly.js (4.8 MB), the default; link: it loads "
                      "it from cdn.plot.ly");
  plotly->check(CLI::IsMember({"inline", "link"}));
  sub->add_flag("--json", a->json, "print the page's data on stdout and write no page")
      ->excludes(output)
      ->excludes(title)
      ->excludes(plotly);
  sub->footer(
      "Examples:\n"
      "  assay report runs/moe -o moe.html\n"
      "  assay report runs/demo-*/ -o demo.html     several runs in the same charts\n"
      "  assay report runs/cpu -o cpu.html          a matrix: tables, claims, curves\n"
      "docs/report.md explains the page.");
  commands.on_chosen(sub, [a] {
    a->runs = run_paths(a->runs);
    return run_report(*a);
  });
}

}  // namespace assay
