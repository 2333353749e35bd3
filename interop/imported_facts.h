// What config.json of an imported model says besides the model itself. imported.json of the run
// keeps it, and an export writes it again.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace assay {

struct ImportedFacts {
  int64_t positions = 0;               // longest context; 0 = unknown
  int64_t window = 0;                  // of attention, beyond which a context must not go; 0 = none
  std::optional<int64_t> full_layers;  // blocks before the first one with that window
  nlohmann::ordered_json bos, eos;     // an id or a list of ids; null = unknown
};

// The fields of a config.json, or of an imported.json: what is missing, or is none, is unknown.
ImportedFacts facts_of(const nlohmann::ordered_json& fields);
// Adds what is known to imported.json.
void add_facts(nlohmann::ordered_json& imported, const ImportedFacts& facts);

// Of a run. Nothing is known of one that was not imported, or by an earlier version, and of no run
// ("").
ImportedFacts imported_facts(const std::string& run);

}  // namespace assay
