// assay router: shows how a run's routers used its experts, with a verdict and advice.
#include <cstdio>
#include <memory>

#include "engine/telemetry/reader.h"
#include "lab/router/text.h"
#include "lab/runs/run_record.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct RouterArguments {
  std::string run;
  std::vector<int64_t> steps;
  bool json = false;
};

int run_router(const RouterArguments& a) {
  const RunRecord run = read_run(a.run);
  const TelemetryReader telemetry(telemetry_file(a.run));
  const RouterAnalysis analysis = analyse_router(run, telemetry, a.steps);
  if (a.json) {
    print_json(router_json(analysis));
  } else {
    std::fputs(router_text(analysis).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_router_command(Commands& commands) {
  auto a = std::make_shared<RouterArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "router", "show how evenly a run used its experts, by step and layer");
  sub->add_option("RUN", a->run, "directory of a run with experts, finished or still training")
      ->required();
  sub->add_option(
         "--steps", a->steps,
         "steps to show, comma-separated; the nearest logged steps are taken (default: six "
         "from the first to the last)")
      ->delimiter(',');
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay router runs/moe\n"
      "  assay router runs/moe --steps 100,700,3600 --json\n"
      "Measures are also shown normalised: raw values are not comparable between models with "
      "different numbers of experts (E) and experts per token (K).\n"
      "docs/router.md explains the tables.");
  commands.on_chosen(sub, [a] { return run_router(*a); });
}

}  // namespace assay
