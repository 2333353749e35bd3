// assay precision: shows what a run's number formats lost.
#include <cstdio>
#include <memory>
#include <optional>

#include "lab/runs/precision_text.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct PrecisionArguments {
  std::string run;
  std::optional<int64_t> step;
  bool json = false;
};

int run_precision(const PrecisionArguments& a) {
  const PrecisionReport report = precision_report(a.run, a.step);
  if (a.json) {
    print_json(precision_report_json(report));
  } else {
    std::fputs(precision_report_text(report).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_precision_command(Commands& commands) {
  auto a = std::make_shared<PrecisionArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "precision", "show what a run's number formats flushed to zero, saturated and rounded away");
  sub->add_option("RUN", a->run,
                  "directory of a run with a quantised recipe, finished or still training")
      ->required();
  sub->add_option("--step", a->step, "show the sampled step nearest to this (default: the last)");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay precision runs/nvfp4\n"
      "  assay precision runs/nvfp4 --step 100 --json\n"
      "Every telemetry.probe_every-th step of run.log_every is sampled. docs/precision.md explains "
      "the "
      "formats and the columns.");
  commands.on_chosen(sub, [a] { return run_precision(*a); });
}

}  // namespace assay
