#include "tools/assay/matrix_evidence.h"

#include <optional>

#include "base/build_info.h"
#include "base/check.h"
#include "data/sha256.h"
#include "engine/config/paths.h"
#include "session/data_evidence.h"
#include "session/session_device.h"
#include "tools/assay/child_process.h"

namespace assay {
namespace {

// This program and device; data_sha256 is left for examine_run().
ReuseEvidence evidence_here(const std::string& device, ReuseEvidence::Elsewhere elsewhere) {
  ReuseEvidence evidence{.program = {.data = {},
                                     .program_sha256 = sha256_file(kThisProgram),
                                     .commit = build_info().commit},
                         .data_sha256 = {},
                         .device = device_name_of(device)};
  evidence.elsewhere = elsewhere;
  return evidence;
}

TakenRun examine_run(const ReusableRun& run, const MatrixFolder& folder, ReuseEvidence evidence) {
  require_room(run, folder);
  RunData data = resolve_data(run.cell->config);
  hash_data(run.cell->config, data);
  evidence.data_sha256 = data_hashes(data);
  require_evidence(run, evidence);
  return {.run = run, .evidence = evidence};
}

}  // namespace

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
