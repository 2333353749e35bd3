// assay router: what a run's routers did with its experts, and what to do about it.
#include <cstdio>
#include <memory>

#include "lab/router/text.h"
#include "tools/assay/commands.h"

namespace assay {
namespace {

struct Arguments {
  std::string run;
  std::vector<int64_t> steps;
  bool json = false;
};

int run_router(const Arguments& a) {
  const RouterAnalysis analysis = analyse_router(read_run(a.run), a.steps);
  const std::string text = a.json ? router_json(analysis).dump(1) + "\n" : router_text(analysis);
  std::fputs(text.c_str(), stdout);
  return kExitDone;
}

}  // namespace

void add_router_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "router", "how evenly a run used its experts, step by step and layer by layer");
  sub->add_option("RUN", a->run, "directory of a run with experts; also one that is training")
      ->required();
  sub->add_option("--steps", a->steps,
                  "steps to show, comma-separated; the nearest logged ones (six from the first to "
                  "the last)")
      ->delimiter(',');
  sub->add_flag("--json", a->json, "one JSON object on stdout");
  sub->footer(
      "Examples:\n"
      "  assay router runs/moe\n"
      "  assay router runs/moe --steps 100,700,3600 --json\n"
      "A measure's normalised form stands beside it: raw ones do not compare across E and K.\n"
      "docs/router.md says how to read the tables.");
  commands.on_chosen(sub, [a] { return run_router(*a); });
}

}  // namespace assay
