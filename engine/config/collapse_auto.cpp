#include "engine/config/collapse_auto.h"

#include "base/check.h"

namespace assay {

std::string collapse_rule_text(const CollapseStopConfig& rule) {
  const char* where[] = {"in any layer", "in every layer", "in the mean over the layers"};
  std::string text = rule.measure;
  if (rule.at_least) text += strprintf(" >= %g", *rule.at_least);
  if (rule.at_most) text += strprintf(" <= %g", *rule.at_most);
  text +=
      strprintf(" %s for %ld logged steps", where[size_t(rule.layers)], long(rule.logged_steps));
  const double from = rule.from.value_or(0);
  return text + (from > 0 ? strprintf(" from %g%% of the steps on", 100 * from) : "");
}

std::string collapse_auto_text(const Config& config) {
  if (!config.model.moe || config.telemetry.collapse_stop != collapse_auto()) return "";
  const CollapseEvidence& e = kCollapseAutoEvidence;
  return "collapse_stop: auto is " + collapse_rule_text(collapse_auto()) +
         strprintf(", which on %ld recorded runs had %ld of %ld hits and %ld of %ld false alarms",
                   long(e.collapsed + e.others), long(e.hits), long(e.collapsed), long(e.alarms),
                   long(e.others)) +
         ", its bound chosen without the runs that it judges (docs/early-warning.md)";
}

}  // namespace assay
