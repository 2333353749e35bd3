#include "lab/receipt/bundle_claims.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "lab/runs/run_measures.h"
#include "lab/runs/share_claim.h"
#include "lab/runs/statistics.h"
#include "lab/runs/time_to_target.h"

namespace assay {
namespace {

using Json = ReceiptJson;

constexpr const char* kStatistics[] = {"mean", "sd", "interval95_low", "interval95_high"};

// Of the rules that need an interval.
constexpr int64_t kRuleVersion = 3;

int64_t version_of(const Json& how) {
  if (!how.contains("version")) return 1;
  const int64_t version = how["version"].is_number_integer() ? how["version"].get<int64_t>() : 0;
  if (version < 1 || version > kRuleVersion) {
    refuse_rule(how, "a version that this program does not know");
  }
  return version;
}

bool is_statistic(const std::string& rule) {
  return std::any_of(std::begin(kStatistics), std::end(kStatistics),
                     [&](const char* name) { return rule == name; });
}

const Json& inner_rule(const Json& how) {
  if (!how.contains("of") || !how["of"].is_object()) refuse_rule(how, "no rule `of`");
  return how["of"];
}

// Null if the rule is of none.
const RunMeasure* measure_in(const Json& of) {
  return rule_text(of, "rule") == "measure" ? find_run_measure(rule_text(of, "name")) : nullptr;
}

bool is_of_share(const Json& of) {
  const RunMeasure* measure = measure_in(of);
  return measure != nullptr && measure->is_share;
}

// Whether the values are shares of the runs, which this version of the rule has no interval for.
bool is_share(const Json& how) {
  if (version_of(how) < 3) return false;
  if (!how.contains("terms")) return is_of_share(inner_rule(how));
  return std::any_of(how["terms"].begin(), how["terms"].end(),
                     [](const Json& term) { return is_of_share(inner_rule(term)); });
}

std::vector<std::string> run_names(const Json& how, const char* key) {
  if (!how.contains(key) || !how[key].is_array() || how[key].empty())
    refuse_rule(how, std::string("no ") + key);
  std::vector<std::string> names;
  for (const Json& name : how[key]) {
    if (!name.is_string()) refuse_rule(how, std::string(key) + " that are not names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

// nullopt if one of the values is null.
std::optional<std::vector<double>> values_of(BundleEvidence& bundle, const Json& of,
                                             const std::vector<std::string>& runs) {
  std::vector<double> values;
  for (const std::string& run : runs) {
    const Json value = recompute(bundle.run(run), of);
    if (value.is_null()) return std::nullopt;
    values.push_back(value.get<double>());
  }
  return values;
}

double number_in(const Json& how, const char* key) {
  if (!how.contains(key) || !how[key].is_number()) refuse_rule(how, std::string("no ") + key);
  return how[key].get<double>();
}

// The mean resolution of the runs' values; 0 in version 1, and in version 2 of first_saturation.
double mean_resolution(BundleEvidence& bundle, const Json& how, const Json& of,
                       const std::vector<std::string>& runs) {
  if (version_of(how) == 1) return 0;
  const RunMeasure* measure = measure_in(of);
  if (version_of(how) == 2 && measure && measure->name == std::string("first_saturation")) return 0;
  double sum = 0;
  for (const std::string& run : runs) sum += resolution_of_rule(bundle.run(run), of);
  return sum / double(runs.size());
}

// The sums of the terms, run by run, with their mean resolution; nullopt if a value is null.
struct TermSums {
  std::vector<double> sums;
  double below = 0, above = 0;
};
std::optional<TermSums> sums_of_terms(BundleEvidence& bundle, const Json& how) {
  if (!how["terms"].is_array() || how["terms"].empty()) refuse_rule(how, "no terms");
  TermSums of_terms;
  auto& [sums, below, above] = of_terms;
  for (const Json& term : how["terms"]) {
    const std::vector<std::string> runs = run_names(term, "runs");
    const auto values = values_of(bundle, inner_rule(term), runs);
    if (!values) return std::nullopt;
    if (sums.empty()) sums.resize(values->size());
    if (sums.size() != values->size()) refuse_rule(how, "terms of different lengths");
    const double sign = number_in(term, "sign");
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += sign * values->at(i);
    (sign > 0 ? below : above) +=
        std::abs(sign) * mean_resolution(bundle, how, inner_rule(term), runs);
  }
  return of_terms;
}

Summary summary_of(const TermSums& of_terms) {
  return with_resolution(summarise(of_terms.sums), of_terms.below, of_terms.above);
}

std::optional<Interval> interval_of(const Summary& summary, const Json& how) {
  if (is_share(how)) return std::nullopt;
  return version_of(how) == 1 ? student95(summary) : summary.interval95;
}

// Whether the verdict is on final losses of runs that stopped at their target.
bool is_on_targets(BundleEvidence& bundle, const Json& how, bool only_order) {
  if (version_of(how) < 3) return false;
  const auto stopped = [&](const Json& term) {
    const RunMeasure* measure = measure_in(inner_rule(term));
    if (!measure || measure->about != RunMeasure::About::kEndLoss) return false;
    const std::vector<std::string> runs = run_names(term, "runs");
    return !inner_rule(term).contains("share") &&
           std::any_of(runs.begin(), runs.end(),
                       [&](const std::string& run) { return stopped_at_target(bundle.run(run)); });
  };
  const auto count = std::count_if(how["terms"].begin(), how["terms"].end(), stopped);
  return rests_on_targets(how["terms"].size(), size_t(count), only_order);
}

Json verdict_rule(BundleEvidence& bundle, const Json& how) {
  const auto of_terms = sums_of_terms(bundle, how);
  if (!of_terms || of_terms->sums.size() == 1) return Json();
  const ClaimRelation relation = claim_relation_named(rule_text(how, "relation"));
  const double number = number_in(how, "number"), within = number_in(how, "within");
  const auto name = claim_verdict_name;
  const bool only_order = relation != ClaimRelation::kNear && number == 0;
  if (is_on_targets(bundle, how, only_order)) return name(ClaimVerdict::kUndecided);
  if (is_share(how)) {
    const bool is_difference = how["terms"].size() > 1;
    if (!untestable_share(relation, number, within, is_difference).empty())
      return name(ClaimVerdict::kUndecided);
    return name(share_verdict(relation, number, within, is_difference, of_terms->sums).verdict);
  }
  const auto interval = interval_of(summary_of(*of_terms), how);
  if (!interval) return name(ClaimVerdict::kUndecided);
  return name(claim_verdict(relation, number, within, *interval));
}

std::optional<Summary> summary_of(BundleEvidence& bundle, const Json& how) {
  if (how.contains("terms")) {
    const auto of_terms = sums_of_terms(bundle, how);
    return of_terms ? std::optional(summary_of(*of_terms)) : std::nullopt;
  }
  const std::vector<std::string> runs = run_names(how, "runs");
  const auto values = values_of(bundle, inner_rule(how), runs);
  const auto resolved = [&](const Summary& summary, const std::vector<std::string>& others) {
    const double above = others.empty() ? 0 : mean_resolution(bundle, how, inner_rule(how), others);
    return with_resolution(summary, mean_resolution(bundle, how, inner_rule(how), runs), above);
  };
  if (!how.contains("minus")) {
    return values ? std::optional(resolved(summarise(*values), {})) : std::nullopt;
  }
  const std::vector<std::string> minus = run_names(how, "minus");
  if (minus.size() != runs.size()) refuse_rule(how, "runs and minus of different lengths");
  const auto subtracted = values_of(bundle, inner_rule(how), minus);
  if (!values || !subtracted) return std::nullopt;
  return resolved(summarise_paired(*values, *subtracted), minus);
}

Json statistic_rule(BundleEvidence& bundle, const Json& how, const std::string& statistic) {
  const std::optional<Summary> summary = summary_of(bundle, how);
  if (!summary) return Json();
  std::optional<double> value = summary->mean;
  if (statistic == "sd") value = summary->sd;
  if (statistic == "interval95_low" || statistic == "interval95_high") {
    const auto interval = interval_of(*summary, how);
    value = std::nullopt;
    if (interval) value = statistic == "interval95_low" ? interval->low : interval->high;
  }
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

Json terms_json(const std::vector<ReceiptTerm>& terms) {
  Json all = Json::array();
  for (const ReceiptTerm& term : terms) {
    Json t;
    t["sign"] = term.sign;
    t["of"] = term.of;
    t["runs"] = term.runs;
    all.push_back(t);
  }
  return all;
}

Json versioned(const std::string& rule) {
  Json how;
  how["rule"] = rule;
  if (rule != "mean" && rule != "sd") how["version"] = kRuleVersion;
  return how;
}

}  // namespace

void BundleEvidence::add(const std::string& run, int64_t sealed_step) {
  runs_.try_emplace(run, (std::filesystem::path(folder_) / run).string(), sealed_step);
}

RunEvidence& BundleEvidence::run(const std::string& run) {
  const auto found = runs_.find(run);
  if (found == runs_.end())
    throw UserError("the receipt has no run " + run, "its inputs list the runs");
  return found->second;
}

ReceiptJson recompute(BundleEvidence& bundle, const ReceiptJson& how) {
  const std::string rule = rule_text(how, "rule");
  if (rule == "run") return recompute(bundle.run(rule_text(how, "run")), inner_rule(how));
  if (is_statistic(rule)) return statistic_rule(bundle, how, rule);
  if (rule == "verdict") return verdict_rule(bundle, how);
  refuse_rule(how, "unknown name " + rule);
}

ReceiptJson how_over_runs(const std::string& statistic, const ReceiptJson& of,
                          const std::vector<std::string>& runs,
                          const std::vector<std::string>& minus) {
  CHECK(is_statistic(statistic), "no statistic %s", statistic.c_str());
  CHECK(minus.empty() || minus.size() == runs.size(), "%zu runs minus %zu", runs.size(),
        minus.size());
  Json how = versioned(statistic);
  how["of"] = of;
  how["runs"] = runs;
  if (!minus.empty()) how["minus"] = minus;
  return how;
}

ReceiptJson how_over_terms(const std::string& statistic, const std::vector<ReceiptTerm>& terms) {
  CHECK(is_statistic(statistic), "no statistic %s", statistic.c_str());
  Json how = versioned(statistic);
  how["terms"] = terms_json(terms);
  return how;
}

ReceiptJson how_verdict(ClaimRelation relation, double number, double within,
                        const std::vector<ReceiptTerm>& terms) {
  Json how = versioned("verdict");
  how["relation"] = claim_relation_name(relation);
  how["number"] = number;
  how["within"] = within;
  how["terms"] = terms_json(terms);
  return how;
}

std::string verdict_by_present_rule(BundleEvidence& bundle, const ReceiptJson& how) {
  if (rule_text(how, "rule") != "verdict" || version_of(how) == kRuleVersion) return "";
  const Json before = recompute(bundle, how);
  if (!before.is_string()) return "";
  Json present = how;
  present["version"] = kRuleVersion;
  for (Json& term : present["terms"]) {
    if (term["of"].contains("share")) term["of"]["version"] = kShareRule;
  }
  Json now = recompute(bundle, present);
  // A run may have no value at a share any more.
  if (!now.is_string()) now = claim_verdict_name(ClaimVerdict::kUndecided);
  return now != before ? now.get<std::string>() : "";
}

double rule_tolerance(const ReceiptJson& how, const ReceiptJson& value) {
  constexpr double kStatistic = 1e-9, kSum = 1e-12;
  const double size = value.is_number() ? std::max(1.0, std::abs(value.get<double>())) : 1.0;
  const std::string rule = rule_text(how, "rule");
  if (is_statistic(rule)) return kStatistic * size;
  if (rule == "run") return rule_tolerance(inner_rule(how), value);
  if (rule == "router" && rule_text(how, "measure") == "dead_share") return kSum;
  if (rule == "measure") return kStatistic * size;
  return 0;
}

}  // namespace assay
