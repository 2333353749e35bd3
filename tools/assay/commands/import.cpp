// assay import: a model in the format of transformers as a run.
#include "interop/import.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"
#include "models/audit/model_table.h"
#include "models/decoder/decoder.h"
#include "session/build_info.h"
#include "tools/assay/commands.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  ImportPlan plan;
  bool json = false;
  std::vector<std::string> command;
};

// As `assay train` resolves it on this machine.
void resolve(Config& config) {
  config.precision.recipe = resolved_recipe(config.precision.recipe);
  if (config.run.threads == 0) {
    config.run.threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
}

int import_hf(const Arguments& a) {
  RunMeta meta;
  meta.command = a.command;
  meta.build = build_info();
  const Imported imported = import_model(a.plan, resolve, meta);
  const std::string architecture = family_name(imported.family).architecture;
  if (a.json) {
    ordered_json j;
    j["run"] = a.plan.run;
    j["checkpoint"] = imported.checkpoint;
    j["architecture"] = architecture;
    j["dtypes"] = imported.dtypes;
    j["tensors"] = imported.tensors;
    j["parameters"] = imported.parameters;
    j["tokenizer"] = imported.config.data.tokenizer;
    j["notes"] = imported.notes;
    std::printf("%s\n", j.dump(1, ' ', false, ordered_json::error_handler_t::replace).c_str());
    return kExitDone;
  }
  std::printf("%s %s: %s parameters (%s) in %s\n", a.plan.folder.c_str(), architecture.c_str(),
              grouped(imported.parameters).c_str(), imported.dtypes.c_str(),
              imported.checkpoint.c_str());
  for (const std::string& note : imported.notes) std::printf("  %s\n", note.c_str());
  const bool data = imported.config.data.synth || !imported.config.data.train.empty();
  if (data) {
    std::printf("  train it on: assay train %s/config.yaml --run %s\n", a.plan.run.c_str(),
                a.plan.run.c_str());
  } else {
    std::printf(
        "  no data was given: to evaluate or train it, import with --config CONFIG or --set "
        "data.train=... --set data.val=...\n");
  }
  return kExitDone;
}

}  // namespace

void add_import_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "import", "a model that transformers wrote as a run: to evaluate, sample and train on");
  sub->add_option("FOLDER", a->plan.folder,
                  "config.json beside model.safetensors, or beside shards with their index")
      ->required();
  sub->add_option("-o,--out", a->plan.run, "run directory to make; it must not hold files")
      ->required();
  sub->add_option("--config", a->plan.config,
                  "configuration with data, optimizer, schedule and run; its model is replaced");
  add_set_option(sub, a->plan.sets);
  sub->add_flag("--json", a->json, "one JSON object on stdout");
  sub->footer(
      "LlamaForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM and Glm4MoeForCausalLM, with weights "
      "in\n"
      "F32, BF16 or F16. The run has a checkpoint of step 0: fp32 masters, an optimizer that has "
      "taken\n"
      "no step. A tokenizer.json of byte-level BPE comes along. What Assay does not compute "
      "(scaled\n"
      "frequencies, windows, biases, heads that are not 32, 64 or 128 wide) is refused by name.\n"
      "Examples:\n"
      "  assay import FOLDER -o runs/imported --config models/presets/cpu/dense-active.yaml\n"
      "  assay eval runs/imported\n"
      "  assay train runs/imported/config.yaml --run runs/imported\n"
      "docs/interop.md says what is compared with transformers, and how closely it agrees.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return import_hf(*a);
  });
}

}  // namespace assay
