#include "tools/assay/training_plan.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/memory_units.h"
#include "data/tokenizer_files.h"
#include "engine/config/check.h"
#include "engine/config/collapse_auto.h"
#include "engine/config/paths.h"
#include "engine/config/yaml.h"
#include "engine/run/imported_run.h"
#include "lab/cluster/step_calls.h"
#include "models/audit/checkpoint_disk.h"
#include "models/audit/horizon.h"
#include "session/training_run.h"
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
    if (config.data.tokenizer.empty()) return "";
    for (const std::string& file : tokenizer_paths(config.data.tokenizer)) {
      if (!std::filesystem::exists(file)) return file + " is missing";
    }
  } catch (const UserError& error) {
    return std::string(error.what()) + " (" + as_installed(error.hint()) + ")";
  }
  return "";
}

constexpr Section kSections[] = {Section::kParameters,  Section::kGradients,   Section::kSums,
                                 Section::kOptimizer,   Section::kActivations, Section::kScratch,
                                 Section::kHostVisible, Section::kData};

// The plans of all ranks, in their order.
using Plans = std::vector<const MemoryPlan*>;

// What each rank sends in a step.
struct Sent {
  std::vector<int64_t> plain, sampled;
  bool without_rows = false;  // of tokens for experts, whose number the router decides
};

Sent sent_by_rank(const Config& config, TrainingMemory& memory) {
  return {.plain = bytes_sent(calls_of_step(config, memory, StepKind::kPlain)),
          .sampled = bytes_sent(calls_of_step(config, memory, StepKind::kSampled)),
          .without_rows = memory.expert_shards != nullptr};
}

size_t fullest(const Plans& plans) {
  const auto less = [](const MemoryPlan* a, const MemoryPlan* b) {
    return a->total_bytes() < b->total_bytes();
  };
  return size_t(std::max_element(plans.begin(), plans.end(), less) - plans.begin());
}

struct SectionRange {
  size_t smallest = 0, largest = 0;
};

SectionRange section_range(const Plans& plans, Section section) {
  std::vector<size_t> bytes;
  for (const MemoryPlan* plan : plans) bytes.push_back(plan->section_bytes(section));
  const auto [smallest, largest] = std::minmax_element(bytes.begin(), bytes.end());
  return {*smallest, *largest};
}

void print_ranks(const Plans& plans, const Sent& sent) {
  std::cout << strprintf("rank %zu of %zu has the most memory, listed above; over all ranks:\n",
                         fullest(plans), plans.size());
  std::cout << strprintf("  %-18s %12s %12s\n", "MiB", "smallest", "largest");
  for (const Section section : kSections) {
    const SectionRange range = section_range(plans, section);
    if (range.largest == 0) continue;
    std::cout << strprintf("  %-18s %12.1f %12.1f\n", section_name(section), in_mib(range.smallest),
                           in_mib(range.largest));
  }
  const auto [least, most] = std::minmax_element(sent.plain.begin(), sent.plain.end());
  std::cout << strprintf("  %-18s %12.1f %12.1f\n", "sent in a step", in_mib(*least),
                         in_mib(*most));
  if (sent.without_rows) std::cout << "  (without the rows of tokens for experts of other ranks)\n";
}

nlohmann::ordered_json ranks_json(const Plans& plans, const Sent& sent) {
  nlohmann::ordered_json json = plan_json(*plans[fullest(plans)]);
  json["ranks"] = plans.size();
  json["fullest_rank"] = fullest(plans);
  json["total_bytes_by_rank"] = nlohmann::ordered_json::array();
  for (const MemoryPlan* plan : plans) {
    json["total_bytes_by_rank"].push_back(plan->total_bytes());
  }
  for (const Section section : kSections) {
    const SectionRange range = section_range(plans, section);
    json["section_bytes_over_ranks"][section_name(section)] = {{"smallest", range.smallest},
                                                               {"largest", range.largest}};
  }
  json["sent_bytes_by_rank"] = {{"step", sent.plain}, {"sampled_step", sent.sampled}};
  return json;
}

// What the checkpoints take where the run would be.
struct Disk {
  CheckpointDisk checkpoints;
  std::optional<int64_t> free;

  std::string text() const {
    const std::string of = free ? strprintf(" of %.1f MiB that are free", in_mib(*free)) : "";
    return "checkpoints: " + checkpoint_disk_text(checkpoints) + of + "\n";
  }
  nlohmann::ordered_json json() const {
    return {{"checkpoint_bytes", checkpoints.each},
            {"most_checkpoints", checkpoints.most},
            {"kept_checkpoints", checkpoints.kept},
            {"free_bytes", free ? nlohmann::ordered_json(*free) : nlohmann::ordered_json()}};
  }
};

// notes: lines after the table.
void print_plans(const Plans& plans, const Sent& sent, const Disk& disk, const std::string& notes,
                 PlanOutput output) {
  if (output == PlanOutput::kJson) {
    nlohmann::ordered_json json =
        plans.size() == 1 ? plan_json(*plans.front()) : ranks_json(plans, sent);
    json["disk"] = disk.json();
    return print_json(json);
  }
  plans[fullest(plans)]->print(std::cout);
  if (plans.size() > 1) print_ranks(plans, sent);
  std::cout << disk.text() << notes;
}

std::string collapse_note(const Config& config) {
  const std::string text = collapse_auto_text(config);
  return text.empty() ? "" : text + "\n";
}

// On stderr, where training has them. Ranks may be planned for other machines, whose cores nobody
// knows here.
void print_warnings(const Config& config, const IsGiven& is_given, int ranks) {
  ProcessCores on;
  if (ranks > 1) on = {.cores = config.run.threads, .processes = ranks};
  for (const std::string& line : training_warnings(config, is_given, on)) {
    std::cerr << "warning: " << line << '\n';
  }
}

// What the steps draw from the data, if their number is known, and what is validated on.
std::string data_note(TrainingRun& run) {
  std::string validation = run.validation_text();
  if (!validation.empty()) validation += "\n";
  if (!horizon_is_known(run.config())) return validation;
  const std::string passes = run.passes_text(), many = run.many_passes_text();
  return run.mixture_table() + (passes.empty() ? "" : passes + "\n") +
         (many.empty() ? "" : "warning: " + many + "\n") + validation;
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

void print_training_plan(const Config& config, const std::string& device, int ranks,
                         const TrainingRunOptions& options, const IsGiven& is_given,
                         PlanOutput output) {
  Session session(config,
                  {.device = device, .use = SessionOptions::Use::kPlan, .planned_ranks = ranks});
  std::vector<std::unique_ptr<TrainingMemory>> others;
  Plans plans;
  const auto plan_others = [&](const auto& memory_of) {
    for (int rank = 1; rank < ranks; ++rank) {
      others.push_back(memory_of(rank));
      plans.push_back(&others.back()->plan);
    }
  };
  const auto sent_in = [&](const Config& resolved) {
    return others.empty() ? Sent{} : sent_by_rank(resolved, *others.front());
  };
  const auto disk_of = [&](const Session& of) {
    Disk disk{.checkpoints = checkpoint_disk(of.config, of.recipe),
              .free = free_disk_bytes(options.folder)};
    if (is_imported(options.folder)) {  // its step 0 stays
      disk.checkpoints.kept += 1;
      disk.checkpoints.most += 1;
    }
    return disk;
  };
  Config present = config;
  follow_tokenizer(options, present);
  if (const std::string missing = missing_data(present); !missing.empty()) {
    std::cerr << "note: planned without the buffers of the data: " << missing << '\n';
    resolve_by_run(session, options, ranks);
    take_products(session, options);
    const Disk disk = disk_of(session);
    print_warnings(session.config, is_given, ranks);
    const TrainingMemory memory(session.config, session.recipe, session.place());
    plans.push_back(&memory.plan);
    plan_others([&](int rank) {
      ModelPlace place = session.place();
      place.rank = rank;
      return std::make_unique<TrainingMemory>(session.config, session.recipe, place);
    });
    return print_plans(plans, sent_in(session.config), disk, collapse_note(session.config), output);
  }
  TrainingRun run(std::move(session), options);
  print_warnings(run.config(), is_given, ranks);
  plans.push_back(&run.plan());
  plan_others([&](int rank) { return run.planned_memory(rank); });
  print_plans(plans, sent_in(run.config()), disk_of(run.session()),
              data_note(run) + collapse_note(run.config()), output);
}

nlohmann::ordered_json plan_json(const MemoryPlan& plan) {
  nlohmann::ordered_json json;
  json["total_bytes"] = plan.total_bytes();
  for (const Section section : kSections) {
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
