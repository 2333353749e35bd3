#include "session/passed_landings.h"

#include <optional>
#include <set>

#include "base/check.h"
#include "engine/run/checkpoint_files.h"
#include "engine/telemetry/schema.h"
#include "engine/telemetry/sqlite.h"

namespace assay {
namespace {

// Of a run's telemetry; nullopt if it has logged nothing: it may be lost, or left out of a copy.
std::optional<std::set<int64_t>> recorded_landings(const std::string& telemetry) {
  const Database database(telemetry, Database::Mode::kReadOnly);
  require_plain_tables(database);
  Statement logged(database, "SELECT 1 FROM scalar LIMIT 1");
  if (!logged.step()) return std::nullopt;
  Statement landed(database, "SELECT DISTINCT step FROM event WHERE kind = 'landing'");
  std::set<int64_t> steps;
  while (landed.step()) steps.insert(landed.integer(0));
  return steps;
}

enum class Kept { kNo, kForNow, kForGood };
Kept kept(const std::string& checkpoint) {
  try {
    return read_checkpoint_manifest(checkpoint).milestone ? Kept::kForGood : Kept::kForNow;
  } catch (const UserError&) {
    return Kept::kNo;
  }
}

}  // namespace

std::string passed_landings_text(const std::string& run, const std::vector<Landing>& landings,
                                 int64_t steps_done) {
  const auto recorded = recorded_landings(run + "/telemetry.db");
  if (!recorded) return "";
  std::string passed;
  for (const Landing& l : landings) {
    if (l.step > steps_done || recorded->contains(l.step)) continue;
    const Kept checkpoint = kept(run + "/checkpoints/" + step_name(l.step));
    if (checkpoint == Kept::kForGood) continue;
    const char* const there =
        checkpoint == Kept::kForNow ? ", whose checkpoint goes with the others" : "";
    passed +=
        strprintf("%s%g (step %ld%s)", passed.empty() ? "" : ", ", l.fraction, long(l.step), there);
  }
  if (passed.empty()) return "";
  return "landings that the run had passed when contract.landings asked for them are not made: " +
         passed;
}

}  // namespace assay
