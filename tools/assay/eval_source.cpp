#include "tools/assay/eval_source.h"

#include <algorithm>
#include <cstdio>
#include <initializer_list>

#include "base/check.h"
#include "engine/config/schedule.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/imported_run.h"
#include "models/decoder/recipe.h"
#include "models/linear/precision.h"

namespace assay {

namespace {

using Sets = std::vector<std::string>;

bool gives(const Sets& sets, std::initializer_list<const char*> fields) {
  return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const char* field) { return gives_field(set, field); });
  });
}

// --set data.*: the user names other data than the run's.
bool names_other_data(const Sets& sets) {
  return std::any_of(sets.begin(), sets.end(), [](const std::string& set) {
    return set.starts_with("data.") || set.starts_with("data=");
  });
}

// The tokenizer too: by itself, or as that of generated text.
bool names_other_tokenizer(const Sets& sets) {
  return gives(sets, {"data.tokenizer", "data.synth"}) ||
         std::any_of(sets.begin(), sets.end(),
                     [](const std::string& set) { return set.starts_with("data.synth."); });
}

// Whether the formats that --set names would not be those measured, since the step is in bf16.
bool hides_formats(const Sets& sets, const Config& config, int64_t step) {
  return gives(sets, {"precision.recipe", "precision.override", "precision.bf16_first_layers",
                      "precision.bf16_last_layers"}) &&
         !gives(sets, {"precision.bf16_tail"}) &&
         precision_phase(config, step) != std::string("recipe");
}

}  // namespace

CheckpointSource open_with_sets(const std::string& run_or_checkpoint, const Sets& sets,
                                Backend backend, const Ranks* ranks) {
  const bool first = !ranks || ranks->first();
  CheckpointSource source =
      open_checkpoint(run_or_checkpoint, first ? Warnings::kPrinted : Warnings::kNone);
  if (sets.empty()) return source;
  const Config trained_config = source.config;
  const std::string trained = section_hashes(trained_config).at("model");
  source.config = parse_config_text(source.state.config_yaml, source.folder + "/state.json",
                                    source.folder, sets);
  std::string& recipe = source.config.precision.recipe;
  recipe = resolved_recipe(recipe, backend);
  source.names_data = names_other_data(sets);
  source.names_tokenizer = names_other_tokenizer(sets);
  if (!source.names_tokenizer) source.config.data.tokenizer = trained_config.data.tokenizer;
  if (section_hashes(source.config).at("model") != trained) {
    throw UserError("--set changes the model, which " + source.folder + " fixes",
                    "eval takes --set data.*, eval.*, run.* and precision.*");
  }
  const DataConfig& data = source.config.data;
  if (data.synth && data.val != trained_config.data.val) {
    throw UserError("data.val is given, but the text is generated (data.synth), validation too",
                    "evaluate on other text: --set data.synth=null --set 'data.val=[FILE]'");
  }
  require_within_window(run_of(source), source.config.run.sequence, "run.sequence");
  if (hides_formats(sets, source.config, source.state.step)) {
    double& tail = source.config.precision.bf16_tail;
    const double of_run = tail;
    tail = 0;
    if (first) {
      std::fprintf(stderr,
                   "note: step %ld is in the run's last steps, in bf16 (precision.bf16_tail = %g); "
                   "measured in %s, as --set says\n",
                   long(source.state.step), of_run,
                   precision_text(source.config.precision).c_str());
    }
  }
  return source;
}

}  // namespace assay
