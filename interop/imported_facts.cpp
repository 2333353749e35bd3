#include "interop/imported_facts.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "data/json_text.h"
#include "engine/run/imported_run.h"
#include "engine/run/run_dir.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPositions = "max_position_embeddings";
constexpr const char* kFullLayers = "max_window_layers";
constexpr const char* kBos = "bos_token_id";
constexpr const char* kEos = "eos_token_id";

bool is_id(const ordered_json& value) {
  return value.is_number_unsigned();
}

ordered_json ids_of(const ordered_json& fields, const char* key) {
  const auto at = fields.find(key);
  if (at == fields.end()) return nullptr;
  const bool known =
      at->is_array() ? !at->empty() && std::all_of(at->begin(), at->end(), is_id) : is_id(*at);
  return known ? *at : ordered_json(nullptr);
}

std::optional<int64_t> count_of(const ordered_json& fields, const char* key) {
  constexpr uint64_t kLargest = uint64_t{1} << 30;  // as JsonFields::count()
  const auto at = fields.find(key);
  const bool known = at != fields.end() && is_id(*at) && at->get<uint64_t>() <= kLargest;
  return known ? std::optional(at->get<int64_t>()) : std::nullopt;
}

}  // namespace

ImportedFacts facts_of(const ordered_json& fields) {
  ImportedFacts facts;
  if (!fields.is_object()) return facts;
  facts.positions = count_of(fields, kPositions).value_or(0);
  facts.window = count_of(fields, kImportedWindow).value_or(0);
  facts.full_layers = count_of(fields, kFullLayers);
  facts.bos = ids_of(fields, kBos);
  facts.eos = ids_of(fields, kEos);
  return facts;
}

void add_facts(ordered_json& imported, const ImportedFacts& facts) {
  if (facts.positions > 0) imported[kPositions] = facts.positions;
  if (facts.window > 0) {
    imported[kImportedWindow] = facts.window;
    if (facts.full_layers) imported[kFullLayers] = *facts.full_layers;
  }
  if (!facts.bos.is_null()) imported[kBos] = facts.bos;
  if (!facts.eos.is_null()) imported[kEos] = facts.eos;
}

ImportedFacts imported_facts(const std::string& run) {
  std::error_code ignored;
  const std::string file = run + "/" + kImportedFile;
  if (run.empty() || !std::filesystem::exists(file, ignored)) return {};
  return facts_of(json_of<ordered_json>(read_regular_file(file)));
}

}  // namespace assay
