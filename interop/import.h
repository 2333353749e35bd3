// Imports a model in the Hugging Face format as a run: a configuration and a checkpoint of step 0,
// from which eval, sample and train continue.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/run/run_dir.h"
#include "interop/hf_architecture.h"

namespace assay {

struct ImportPlan {
  std::string folder;             // with config.json and safetensors
  std::string run;                // folder to make
  std::string config;             // data, optimizer, schedule; "" = defaults
  std::vector<std::string> sets;  // on top of both
};

struct Imported {
  Family family = Family::kLlama;
  Config config;
  std::string checkpoint;
  int64_t tensors = 0, parameters = 0;
  std::string dtypes;
  std::vector<std::string> notes;  // what was left out, and why
};

// resolve(config) finishes the configuration (recipe, steps); meta goes into meta.json. UserError,
// before anything is written, if the folder is not such a model.
using ResolveConfig = void (*)(Config&);
Imported import_model(const ImportPlan& plan, ResolveConfig resolve, RunMeta meta);

}  // namespace assay
