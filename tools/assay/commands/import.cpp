// assay import: makes a run from a model in the format of transformers.
#include "interop/import.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/shell_word.h"
#include "models/audit/model_table.h"
#include "models/decoder/decoder.h"
#include "models/decoder/recipe.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

struct ImportArguments {
  ImportPlan plan;
  bool json = false;
  std::vector<std::string> command;
};

int import_hf(const ImportArguments& a) {
  RunMeta meta;
  meta.command = a.command;
  meta.build = build_info();
  const auto resolve = [](Config& config) {
    const ProductsMode products = config.precision.products;
    resolve_precision(config, Backend::kCpu, 0);
    config.precision.products = products;  // `auto`: of the machine that trains
  };
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
    print_json(j);
    return kExitDone;
  }
  std::printf("%s %s: %s parameters (%s) in %s\n", a.plan.folder.c_str(), architecture.c_str(),
              grouped(imported.parameters).c_str(), imported.dtypes.c_str(),
              imported.checkpoint.c_str());
  for (const std::string& note : imported.notes) std::printf("  %s\n", note.c_str());
  const bool data = imported.config.data.synth || !imported.config.data.train.empty();
  if (data) {
    std::printf("  to train it: assay train %s --run %s\n",
                shell_word(a.plan.run + "/config.yaml").c_str(), shell_word(a.plan.run).c_str());
  } else {
    std::printf(
        "  no data was given: to evaluate or train it, import it with --config CONFIG or --set "
        "data.train=... --set data.val=...\n");
  }
  return kExitDone;
}

}  // namespace

void add_import_command(Commands& commands) {
  auto a = std::make_shared<ImportArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "import", "make a run from a transformers model, to evaluate, sample and train it");
  sub->add_option("FOLDER", a->plan.folder,
                  "folder with config.json and model.safetensors (or shards with their index)")
      ->required();
  sub->add_option("-o,--out", a->plan.run, "run directory to create; an existing one must be empty")
      ->required();
  sub->add_option("--config", a->plan.config,
                  "configuration for data, optimizer, schedule and run; of its model section init "
                  "and the router's balancing");
  add_set_option(sub, a->plan.sets);
  sub->add_flag("--json", a->json, "print one JSON object on stdout");
  sub->footer(
      "Reads LlamaForCausalLM, Qwen3ForCausalLM, MixtralForCausalLM, Qwen3MoeForCausalLM and "
      "Glm4MoeForCausalLM with weights in F32, BF16 or F16. The run gets a checkpoint of step 0 "
      "with fp32 masters and an "
      "optimizer that has taken no step, and the folder's byte-level BPE tokenizer.json if the "
      "configuration has no tokenizer.\n"
      "A model with a feature that Assay does not have (scaled RoPE frequencies, windows, biases, "
      "heads that are not 32, 64 or 128 wide) is refused; the error names the feature.\n"
      "Examples:\n"
      "  assay data prepare TEXTS --tokenizer FOLDER -o shards\n"
      "  assay import FOLDER -o runs/imported --config models/presets/cpu/dense-active.yaml --set "
      "data.synth=null --set 'data.train=[shards/*_train_*.bin]' --set "
      "'data.val=[shards/*_val_*.bin]'\n"
      "  assay eval runs/imported\n"
      "  assay train runs/imported/config.yaml --run runs/imported\n"
      "The stories of data.synth, which this preset has, are in the tokens of a tokenizer of their "
      "own: they fit only a model that was trained on them.\n"
      "docs/interop.md lists what is compared with transformers and how closely it agrees.");
  commands.on_chosen(sub, [a, &commands] {
    a->command = commands.arguments;
    return import_hf(*a);
  });
}

}  // namespace assay
