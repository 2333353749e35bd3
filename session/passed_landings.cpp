#include "session/passed_landings.h"

#include <set>

#include "base/check.h"
#include "engine/run/checkpoint_files.h"
#include "engine/telemetry/sqlite.h"

namespace assay {
namespace {

std::set<int64_t> recorded_landings(const std::string& telemetry) {
  const Database database(telemetry, Database::Mode::kReadOnly);
  Statement landed(database, "SELECT DISTINCT step FROM event WHERE kind = 'landing'");
  std::set<int64_t> steps;
  while (landed.step()) steps.insert(landed.integer(0));
  return steps;
}

// The telemetry may be lost.
bool is_kept(const std::string& checkpoint) {
  try {
    return read_checkpoint_manifest(checkpoint).milestone;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

std::string passed_landings_text(const std::string& run, const std::vector<Landing>& landings,
                                 int64_t steps_done) {
  const std::set<int64_t> recorded = recorded_landings(run + "/telemetry.db");
  std::string passed;
  for (const Landing& l : landings) {
    if (l.step > steps_done || recorded.contains(l.step)) continue;
    if (is_kept(run + "/checkpoints/" + step_name(l.step))) continue;
    passed += strprintf("%s%g (step %ld)", passed.empty() ? "" : ", ", l.fraction, long(l.step));
  }
  if (passed.empty()) return "";
  return "landings that the run had passed when contract.landings asked for them are not made: " +
         passed + "; no checkpoint of theirs is kept";
}

}  // namespace assay
