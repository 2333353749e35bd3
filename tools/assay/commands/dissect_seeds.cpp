// assay dissect seeds: whether the experts of runs of other seeds are the same experts.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/progress.h"
#include "session/seeds.h"
#include "tools/assay/commands/dissect.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct DissectSeedsArguments {
  std::vector<std::string> runs;
  HeldOutOptions text;
  MatchPlan plan;
  bool json = false;
};

int dissect_seeds(const DissectSeedsArguments& a) {
  std::unique_ptr<Progress> progress;
  const SeedsReport report = measure_seeds(a.runs, a.text, a.plan, [&](int64_t done, int64_t of) {
    if (!progress) {
      progress = std::make_unique<Progress>("matching experts", of, ProgressUnit{"layers", 1},
                                            std::chrono::seconds(2));
    }
    progress->update(done);
  });
  progress.reset();
  if (a.json) {
    print_json(seeds_json(report));
  } else {
    std::fputs(seeds_text(report).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_dissect_seeds(Commands& commands, CLI::App* dissect) {
  auto a = std::make_shared<DissectSeedsArguments>();
  CLI::App* sub = dissect->add_subcommand(
      "seeds", "whether runs of other seeds have the same experts, by the tokens that choose them");
  sub->add_option("RUNS", a->runs,
                  "two or more runs of one model (the newest checkpoint of each) or checkpoints: "
                  "RUN/checkpoints/step-N; every two are compared")
      ->required();
  add_held_out_options(sub, a->text, a->json);
  sub->add_option(
         "--shuffles", a->plan.shuffles,
         "N shuffles of the text give the two levels to compare with; an unrelated pair of experts "
         "is above chance once in N + 1 times (default: 19)")
      ->check(above_zero());
  sub->footer(
      "Two experts are as alike as the tokens that choose them: 1 = the same tokens. The experts "
      "of "
      "two runs are paired one to one so that the sum is the largest. Beside it is what the same "
      "pairing finds where nothing is alike (chance: the second run's tokens are shuffled), and "
      "where a token's id alone says which experts it takes (token id: shuffled among the tokens "
      "of one id). Forward passes; nothing is written.\n"
      "Examples:\n"
      "  assay dissect seeds runs/moe-seed1 runs/moe-seed2 runs/moe-seed3\n"
      "  assay dissect seeds runs/moe-seed1 runs/moe-seed2 --tokens 1000000 --json\n"
      "  assay dissect seeds runs/moe/checkpoints/step-*         from when on are experts the "
      "same");
  commands.on_chosen(sub, [a] { return dissect_seeds(*a); });
}

}  // namespace assay
