// assay router: shows how a run's routers used its experts, with a verdict and advice; of a matrix
// one line per run.
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "engine/telemetry/reader.h"
#include "lab/matrix/folder.h"
#include "lab/page/matrix.h"
#include "lab/router/overview.h"
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

int show_matrix(const RouterArguments& a) {
  if (!a.steps.empty()) {
    throw UserError("--steps with " + a.run + ", the folder of a matrix",
                    "it shows the end of each run: give one of the runs in it with --steps");
  }
  const RouterOverview overview = router_overview(a.run, matrix_runs(a.run));
  if (!a.json) {
    std::fputs(overview_text(overview).c_str(), stdout);
    return kExitDone;
  }
  for (const std::string& one : overview.left_out) {
    std::fprintf(stderr, "note: left out: %s\n", one.c_str());
  }
  print_json(overview_json(overview));
  return kExitDone;
}

int run_router(const RouterArguments& a) {
  if (is_matrix_folder(a.run)) return show_matrix(a);
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
  sub->add_option(
         "RUN", a->run,
         "directory of a run with experts, finished or still training, or of a matrix: one line "
         "per run")
      ->required();
  sub->add_option(
         "--steps", a->steps,
         "steps to show, comma-separated; the nearest logged steps are taken (default: six "
         "from the first to the last)")
      ->delimiter(',')
      ->transform(whole_number());
  sub->add_flag("--json", a->json, "print one JSON object on stdout, of a matrix a list");
  sub->footer(
      "Examples:\n"
      "  assay router runs/moe\n"
      "  assay router runs/moe --steps 100,700,3600 --json\n"
      "  assay router runs/experts            the runs of a matrix, one line each\n"
      "cv/ceiling, K max_load and H/ln E are shares of the worst or best that can be: they compare "
      "layers, steps and rules at one number of experts E and one K. Across numbers of experts "
      "exp(H)/E compares, the share of the experts in effective use.\n"
      "docs/router.md explains the tables.");
  commands.on_chosen(sub, [a] { return run_router(*a); });
}

}  // namespace assay
