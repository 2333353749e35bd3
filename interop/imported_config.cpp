#include "interop/imported_config.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "engine/config/check.h"
#include "engine/config/fields.h"
#include "engine/config/paths.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// Default run.sequence at most, for models with longer contexts: fits a small machine.
constexpr int64_t kLongestSequence = 2048;

constexpr const char* kBiasRate = "model.moe.router.bias_rate";

bool has_selection_bias(const ModelConfig& model) {
  return model.moe && model.moe->router.bias_rate.on();
}

// The model as a section of a configuration, without what training adds (auxiliary losses, init,
// the rate of a selection bias): that is left to the user's file.
std::string model_section(const ModelConfig& model) {
  Config only;
  only.model = model;
  std::string text = to_yaml(only);
  text.erase(text.find("\noptimizer:") + 1);
  const auto drop = [&](const std::string& key) {
    const size_t at = text.find(" " + key + ":");
    if (at == std::string::npos) return;
    const size_t begin = text.rfind('\n', at) + 1;
    text.erase(begin, text.find('\n', at) + 1 - begin);
  };
  for (const char* key : {"init", "aux", "aux_alpha", "aux_scope", "z_alpha", "bias_follows_lr"}) {
    drop(key);
  }
  if (has_selection_bias(model)) drop("bias_rate");
  if (!model.moe) text += "  moe: null\n";
  return text;
}

// The model as text, without the fields that training may choose.
std::string fixed_part(ModelConfig model) {
  model.init = ModelConfig().init;
  if (model.moe) {
    RouterConfig& router = model.moe->router;
    const RouterConfig usual;
    router.bias_rate = usual.bias_rate;
    router.bias_steps = usual.bias_steps;
    router.bias_rule = usual.bias_rule;
    router.bias_follows_lr = usual.bias_follows_lr;
    router.aux = usual.aux;
    router.aux_alpha = usual.aux_alpha;
    router.aux_scope = usual.aux_scope;
    router.z_alpha = usual.z_alpha;
  }
  Config only;
  only.model = model;
  return to_yaml(only);
}

// The rate of a selection bias in the user's file; 0 if it has no mixture, or is a configuration
// only together with the model.
BiasRate rate_of_file(const ImportPlan& plan) {
  std::vector<std::string> sets = plan.sets;
  std::erase_if(sets, [](const std::string& set) { return set.starts_with("model"); });
  BiasRate rate;
  problem_of([&] {
    const Config file = load_config(plan.config, sets);
    if (file.model.moe) rate = file.model.moe->router.bias_rate;
  });
  return rate;
}

// A class without a selection bias has none whatever the file says; --set may still give it one.
void note_left_rate(const ImportPlan& plan, const ImportedModel& imported,
                    std::vector<std::string>& notes) {
  if (!imported.model.moe || has_selection_bias(imported.model) || plan.config.empty()) return;
  const auto gives_rate = [](const std::string& set) { return gives_field(set, kBiasRate); };
  if (std::any_of(plan.sets.begin(), plan.sets.end(), gives_rate)) return;
  const BiasRate rate = rate_of_file(plan);
  if (!rate.on()) return;
  notes.push_back(std::string(kBiasRate) + " is 0 and not " + yaml_scalar(rate) +
                  " as in the configuration or by default: " +
                  family_name(imported.family).architecture + " has no selection bias");
}

}  // namespace

Config imported_config(const ImportPlan& plan, const ImportedModel& imported,
                       std::vector<std::string>& notes) {
  std::string text;
  if (!plan.config.empty()) {
    const std::string path = preset_or_path(plan.config);
    read_file(path);  // its error names the file, and not the text that includes it
    text += "include: " + yaml_scalar(fs::absolute(path).string()) + "\n";
  } else {
    const int64_t known =
        imported.facts.positions > 0 ? imported.facts.positions : kLongestSequence;
    const int64_t sequence = std::min(known, kLongestSequence);
    text += strprintf("run: {sequence: %ld, micro_batch: 4, batch_tokens: %ld}\n", long(sequence),
                      long(16 * sequence));
  }
  text += model_section(imported.model);
  require_utf8_sets(plan.sets);
  const Config config =
      parse_config_text(text, "the imported configuration", fs::current_path().string(), plan.sets);
  require_utf8_paths(config);
  if (fixed_part(config.model) != fixed_part(imported.model)) {
    throw UserError(plan.folder + "/config.json fixes the model, but --set changes it",
                    "of model.* only init and the router's training fields (aux, aux_alpha, "
                    "z_alpha, bias_*) can be set");
  }
  if (imported.facts.window > 0 && config.run.sequence > imported.facts.window) {
    throw UserError(
        strprintf("%s/config.json: sliding_window is %ld, but run.sequence is %ld",
                  plan.folder.c_str(), long(imported.facts.window), long(config.run.sequence)),
        strprintf("sliding windows are not supported: a run.sequence of at most %ld "
                  "does not need one",
                  long(imported.facts.window)));
  }
  note_left_rate(plan, imported, notes);
  return config;
}

}  // namespace assay
