// assay audit: parameters, FLOPs, memory and contract horizons of several models side by side.
// Allocates no tensors.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "engine/config/paths.h"
#include "models/audit/family.h"
#include "models/decoder/training_memory.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"
#include "tools/assay/training_plan.h"

namespace assay {
namespace {

struct AuditArguments {
  std::vector<std::string> configs;
  std::vector<std::string> sets;
  AuditOptions report;
  bool json = false;
  bool plan = false;
  bool without_shared = false;
};

// Names each model after its file, or after its path when two files have the same name.
std::vector<NamedConfig> load_named(const AuditArguments& a) {
  std::vector<NamedConfig> models;
  for (const std::string& path : a.configs)
    models.push_back({std::filesystem::path(path).stem().string(), load_run_config(path, a.sets)});
  for (NamedConfig& model : models) resolve_reference(model.config);
  for (size_t i = 0; i < models.size(); ++i)
    for (size_t j = 0; j < models.size(); ++j)
      if (i != j && models[i].name == std::filesystem::path(a.configs[j]).stem().string())
        models[i].name = a.configs[i];
  return models;
}

void check_arguments(const AuditArguments& a) {
  for (const std::string& kind : a.report.contracts)
    if (kind != "totalDN" && kind != "activeDN")
      throw UserError("--contract " + kind + " is unknown", "choose totalDN, activeDN or both");
  for (const double f : a.report.fractions)
    if (!(f > 0 && f <= 1))
      throw UserError(strprintf("--fraction %g is not a fraction of the horizon", f),
                      "give numbers > 0 and <= 1, for example 0.2");
  for (const int64_t steps : a.report.steps)
    if (steps < 1)
      throw UserError(strprintf("--steps %ld is not a number of steps", static_cast<long>(steps)),
                      "give numbers >= 1");
}

// Each model's memory plan, as `assay train --plan` prints it except for the data buffers.
int print_plans(const std::vector<NamedConfig>& models) {
  for (const NamedConfig& model : models) {
    std::printf("%s\n%s", model.name.c_str(), memory_plan_text(model.config).c_str());
  }
  return kExitDone;
}

int print_plans_as_json(const std::vector<NamedConfig>& models) {
  nlohmann::ordered_json plans;
  for (const NamedConfig& model : models) {
    const Recipe recipe = resolve_recipe(model.config.precision.recipe);
    plans["models"][model.name] = plan_json(TrainingMemory(model.config, recipe).plan);
  }
  print_json(plans);
  return kExitDone;
}

int run_audit(AuditArguments a) {
  check_arguments(a);
  if (a.without_shared) a.report.shared = SharedExperts::kLeftOut;
  const std::vector<NamedConfig> models = load_named(a);
  if (a.plan) return a.json ? print_plans_as_json(models) : print_plans(models);
  if (a.json) {
    auto json = audit_json(models, a.report);
    json["family"] = family_json(models, a.report);
    print_json(json);
  } else {
    std::fputs(audit_table(models, a.report).c_str(), stdout);
    const std::string family = family_table(models, a.report);
    if (!family.empty()) std::printf("\n%s", family.c_str());
  }
  return kExitDone;
}

}  // namespace

void add_audit_command(Commands& commands) {
  auto a = std::make_shared<AuditArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "audit", "list parameters, FLOPs, bytes and horizons of several models side by side");
  sub->add_option("CONFIG", a->configs, "configuration files")->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->add_option("--contract", a->report.contracts,
                  "contracts whose horizons are listed: totalDN, activeDN (default: both)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--coefficient", a->report.coefficient,
                  "tokens per parameter (default: contract.coefficient of each CONFIG; in the "
                  "table of all contracts, tokens / parameters of the first CONFIG's run)")
      ->check(above_zero());
  sub->add_option("--fraction", a->report.fractions,
                  "fractions of the horizon to list (default: contract.fraction, or 0.2 if it "
                  "is 1)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--steps", a->report.steps,
                  "steps at which to list tokens per parameter (default: run.steps)")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_flag("--without-shared", a->without_shared,
                "do not count shared experts in the parameters of totalDN");
  sub->add_flag("--plan", a->plan,
                "print only the planned memory of a training step; allocates nothing");
  add_set_option(sub, a->sets);
  sub->footer(
      "Examples:\n"
      "  assay audit models/presets/cpu/*.yaml                     several models side by side\n"
      "  assay audit models/presets/cpu/moe.yaml --plan --set run.micro_batch=4\n"
      "  assay audit runs/moe/config.yaml --json                   the model of a run\n"
      "docs/contracts.md defines the horizons.");
  commands.on_chosen(sub, [a] {
    a->configs = presets_or_paths(a->configs);
    return run_audit(*a);
  });
}

}  // namespace assay
