// assay doctor: this machine's hardware, its measured limits, what is not available or slow, and
// what to do.
#include "tools/assay/doctor.h"

#include <cstdio>
#include <memory>

#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct DoctorArguments {
  bool json = false, quick = false;
};

int run_doctor(const DoctorArguments& a) {
  const Examination e =
      examine_machine(a.quick ? MachineLimits::kLeftOut : MachineLimits::kMeasured);
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
  print_json(all);
  return kExitDone;
}

}  // namespace

void add_doctor_command(Commands& commands) {
  auto a = std::make_shared<DoctorArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "doctor", "show this machine's hardware, measured limits, and what is not available");
  sub->add_flag("--quick", a->quick, "skip the measurements");
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "CPU limits: a copy of 128 MiB (bytes read plus bytes written; where the caches hold both "
      "sides it is theirs, not the memory's), and dense matrix products of 2048 rows. mfu on a CPU "
      "and the benches are fractions of such limits.\n"
      "Run it on an otherwise idle machine.");
  commands.on_chosen(sub, [a] { return run_doctor(*a); });
}

}  // namespace assay
