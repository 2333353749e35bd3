#include "tools/assay/matrix_evidence.h"

#include <filesystem>
#include <map>
#include <optional>

#include "base/build_info.h"
#include "base/check.h"
#include "base/read_failed.h"
#include "data/hash_files.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/config/check.h"
#include "engine/config/paths.h"
#include "session/data_evidence.h"
#include "session/session_device.h"
#include "tools/assay/child_process.h"

namespace assay {
namespace {

// This program and device; data is left for examine_run().
ReuseEvidence evidence_here(const std::string& device, ReuseEvidence::Elsewhere elsewhere) {
  ReuseEvidence evidence{.program = {.data = {},
                                     .program_sha256 = sha256_file(kThisProgram),
                                     .commit = build_info().commit},
                         .data = {},
                         .device = device_name_of(device)};
  evidence.elsewhere = elsewhere;
  return evidence;
}

TakenRun examine_run(const ReusableRun& run, const MatrixFolder& folder, ReuseEvidence evidence) {
  require_room(run, folder);
  RunData data = resolve_data(run.cell->config);
  hash_data(run.cell->config, data);
  evidence.data = {.files = data_hashes(data), .tokenizer_sha256 = data.tokenizer_sha256};
  require_evidence(run, evidence);
  return {.run = run, .evidence = evidence};
}

// "" of what cannot be read as a tokenizer: its files are compared by their bytes.
std::string tokenizer_now(const std::string& path) {
  if (path.empty()) return "";
  try {
    return tokenizer_hash(read_tokenizer(path));
  } catch (const ReadFailed&) {
    throw;
  } catch (const UserError&) {
    return "";
  }
}

// Empty where a file is not on this machine, and of a corpus that the configuration generates.
DataHashes hashes_now(const DataConfig& data) {
  DataHashes now;
  if (data.synth) return now;
  try {
    std::vector<std::string> paths = expand_files(data.train, "data.train");
    const std::vector<std::string> val = expand_files(data.val, "data.val");
    paths.insert(paths.end(), val.begin(), val.end());
    if (!data.tokenizer.empty()) {
      const std::vector<std::string> tokenizer = tokenizer_paths(data.tokenizer);
      paths.insert(paths.end(), tokenizer.begin(), tokenizer.end());
    }
    for (const auto& [path, file] : hash_files(paths, UseCache::kYes))
      now.files[path] = file.sha256;
  } catch (const ReadFailed&) {
    throw;
  } catch (const UserError&) {
    return {};  // a run that is to be trained reports it
  }
  now.tokenizer_sha256 = tokenizer_now(data.tokenizer);
  return now;
}

}  // namespace

void note_data(Matrix& matrix, const MatrixFolder& folder, DataOf which) {
  std::map<std::vector<std::string>, DataHashes> known;  // by the fields that name files
  for (Cell& cell : matrix.cells) {
    std::error_code ignored;
    const bool begun = std::filesystem::exists(folder.run(cell) + "/meta.json", ignored);
    if (!begun && which == DataOf::kBegunRuns) continue;
    const DataConfig& data = cell.config.data;
    std::vector<std::string> fields = data.train;
    fields.push_back("");
    fields.insert(fields.end(), data.val.begin(), data.val.end());
    fields.insert(fields.end(), {"", data.tokenizer, data.synth ? "synth" : ""});
    const auto [own, is_new] = known.try_emplace(std::move(fields));
    if (is_new) own->second = hashes_now(data);
    cell.data = own->second;
  }
}

std::vector<TakenRun> examine_runs(const std::string& device, ReuseEvidence::Elsewhere elsewhere,
                                   const std::vector<ReusableRun>& runs,
                                   const MatrixFolder& folder) {
  std::vector<TakenRun> examined;
  if (runs.empty()) return examined;
  const ReuseEvidence evidence = evidence_here(device, elsewhere);
  for (const ReusableRun& run : runs) examined.push_back(examine_run(run, folder, evidence));
  return examined;
}

void examine_plan(MatrixPlan& plan, ReuseEvidence::Elsewhere elsewhere,
                  const MatrixFolder& folder) {
  std::optional<ReuseEvidence> evidence;
  for (PlannedCell& p : plan.runs) {
    if (p.reuse.empty()) continue;
    if (!evidence) evidence = evidence_here(plan.matrix->file.device, elsewhere);
    try {
      examine_run({.cell = p.cell, .run = p.reuse}, folder, *evidence);
    } catch (const UserError& error) {
      p.refused = error.what();
      p.hint = as_installed(error.hint());
    }
  }
}

}  // namespace assay
