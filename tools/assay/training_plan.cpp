#include "tools/assay/training_plan.h"

#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "engine/config/check.h"
#include "engine/config/yaml.h"
#include "models/audit/horizon.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

// Why the data cannot be read yet; "" if its files are there. A corpus that is generated counts as
// there.
std::string missing_data(const Config& config) {
  if (config.data.synth) return "";
  try {
    validate_data(config);
    expand_files(config.data.train, "data.train");
    expand_files(config.data.val, "data.val");
  } catch (const UserError& error) {
    return std::string(error.what()) + " (" + error.hint() + ")";
  }
  const std::string& tokenizer = config.data.tokenizer;
  if (!tokenizer.empty() && !std::filesystem::exists(tokenizer)) return tokenizer + " is missing";
  return "";
}

void print_plan(const MemoryPlan& plan, const std::string& mixture, PlanOutput output) {
  if (output == PlanOutput::kJson) return print_json(plan_json(plan));
  plan.print(std::cout);
  std::cout << mixture;
}

// True if a line at the top level begins with the key.
bool has_top_key(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.rfind(key + ":", 0) == 0) return true;
  }
  return false;
}

bool is_matrix(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const std::string text = read_file(path);
  return has_top_key(text, "models") && !has_top_key(text, "model");
}

}  // namespace

void print_training_plan(const Config& config, const std::string& device,
                         const TrainingRunOptions& options, PlanOutput output) {
  Session session(config, {.device = device, .use = SessionOptions::Use::kPlan});
  if (const std::string missing = missing_data(config); !missing.empty()) {
    std::cerr << "note: planned without the buffers of the data: " << missing << '\n';
    const TrainingMemory memory(session.config, session.recipe, session.place());
    return print_plan(memory.plan, "", output);
  }
  TrainingRun run(std::move(session), options);
  print_plan(run.plan(), horizon_is_known(run.config()) ? run.mixture_table() : "", output);
}

nlohmann::ordered_json plan_json(const MemoryPlan& plan) {
  nlohmann::ordered_json json;
  json["total_bytes"] = plan.total_bytes();
  for (const Section section :
       {Section::kParameters, Section::kGradients, Section::kSums, Section::kOptimizer,
        Section::kActivations, Section::kScratch, Section::kHostVisible, Section::kData}) {
    json["section_bytes"][section_name(section)] = plan.section_bytes(section);
  }
  json["buffers"] = nlohmann::ordered_json::array();
  for (const MemoryPlan::Entry& entry : plan.entries()) {
    json["buffers"].push_back(
        {{"section", section_name(entry.section)}, {"name", entry.name}, {"bytes", entry.bytes}});
  }
  return json;
}

Config load_run_config(const std::string& path, const std::vector<std::string>& sets) {
  try {
    return load_config(path, sets);
  } catch (const UserError&) {
    if (is_matrix(path)) {
      throw UserError(path + " is a matrix of models, not the configuration of one run",
                      "assay matrix " + path);
    }
    throw;
  }
}

}  // namespace assay
