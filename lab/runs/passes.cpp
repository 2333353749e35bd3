#include "lab/runs/passes.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "data/manifest.h"
#include "engine/config/check.h"
#include "lab/runs/data_roles.h"
#include "models/audit/family.h"

namespace assay {
namespace {

// Whether the manifest of the file's folder says that it holds another text than `sha256`.
bool manifest_contradicts(const std::filesystem::path& file, const std::string& sha256) {
  const std::string folder = file.parent_path().string();
  if (!has_manifest(folder)) return false;
  const std::vector<ShardEntry> shards = read_manifest(folder).shards;
  return std::any_of(shards.begin(), shards.end(), [&](const ShardEntry& shard) {
    return shard.file == file.filename() && shard.sha256 != sha256;
  });
}

bool reads_recorded_shards(const RunRecord& run) {
  const std::optional<DataRoles> roles = data_roles(run);
  if (!roles) return false;
  try {
    const std::vector<std::string> files = expand_files(run.config.data.train, "data.train");
    return files.size() == roles->train.size() &&
           std::all_of(files.begin(), files.end(), [&](const std::string& file) {
             const auto recorded = run.data_sha256.find(file);
             return recorded != run.data_sha256.end() &&
                    !manifest_contradicts(file, recorded->second);
           });
  } catch (const UserError&) {
    return false;  // gone, or a damaged manifest
  }
}

}  // namespace

std::optional<double> passes_of(const RunRecord& run) {
  std::optional<int64_t> tokens = run.epoch_tokens;
  if (!tokens && (run.config.data.synth || reads_recorded_shards(run)))
    tokens = epoch_tokens(run.config);
  if (!tokens || *tokens <= 0) return std::nullopt;
  return double(run.steps_done) * double(run.config.run.batch_tokens) / double(*tokens);
}

}  // namespace assay
