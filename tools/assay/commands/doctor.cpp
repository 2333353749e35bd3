// assay doctor: what this machine has, its limits measured, what will not work and what to do.
#include "tools/assay/doctor.h"

#include <cstdio>
#include <memory>

#include "tools/assay/commands.h"

namespace assay {
namespace {

struct Arguments {
  bool json = false, quick = false;
};

int run_doctor(const Arguments& a) {
  const Examination e = examine_machine(a.quick ? Measure::kNothing : Measure::kLimits);
  if (!a.json) {
    std::fputs(examination_text(e).c_str(), stdout);
    return kExitDone;
  }
  nlohmann::ordered_json all = e.facts;
  all["advice"] = nlohmann::ordered_json::array();
  for (const Advice& advice : e.advice) {
    nlohmann::ordered_json one;
    one["what"] = advice.what;
    one["todo"] = advice.todo;
    all["advice"].push_back(one);
  }
  std::printf("%s\n", all.dump(1).c_str());
  return kExitDone;
}

}  // namespace

void add_doctor_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "doctor", "what this machine has, its limits measured, what will not work");
  sub->add_flag("--quick", a->quick, "measure nothing");
  sub->add_flag("--json", a->json, "one JSON object on stdout");
  sub->footer(
      "The limits are what mfu and the benches give shares of: a copy of 256 MiB between blocks "
      "that no cache\n"
      "holds, read and written, and dense products of 2048 rows. Run it on a quiet machine.");
  commands.on_chosen(sub, [a] { return run_doctor(*a); });
}

}  // namespace assay
