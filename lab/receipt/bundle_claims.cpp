#include "lab/receipt/bundle_claims.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "lab/runs/statistics.h"

namespace assay {
namespace {

using Json = ReceiptJson;

constexpr const char* kStatistics[] = {"mean", "sd", "interval95_low", "interval95_high"};

bool is_statistic(const std::string& rule) {
  return std::any_of(std::begin(kStatistics), std::end(kStatistics),
                     [&](const char* name) { return rule == name; });
}

[[noreturn]] void fail(const Json& how, const std::string& what) {
  throw UserError(what + " in the rule " + how.dump(), "docs/receipts.md lists the rules");
}

const Json& inner_rule(const Json& how) {
  if (!how.contains("of") || !how["of"].is_object()) fail(how, "no rule `of`");
  return how["of"];
}

std::vector<std::string> run_names(const Json& how, const char* key) {
  if (!how.contains(key) || !how[key].is_array() || how[key].empty())
    fail(how, std::string("no ") + key);
  std::vector<std::string> names;
  for (const Json& name : how[key]) {
    if (!name.is_string()) fail(how, std::string(key) + " that are not names");
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

std::optional<Summary> summary_of(BundleEvidence& bundle, const Json& how) {
  const std::vector<std::string> runs = run_names(how, "runs");
  const auto values = values_of(bundle, inner_rule(how), runs);
  if (!how.contains("minus")) return values ? std::optional(summarise(*values)) : std::nullopt;
  const std::vector<std::string> minus = run_names(how, "minus");
  if (minus.size() != runs.size()) fail(how, "runs and minus of different lengths");
  const auto subtracted = values_of(bundle, inner_rule(how), minus);
  if (!values || !subtracted) return std::nullopt;
  return summarise_paired(*values, *subtracted);
}

Json statistic_rule(BundleEvidence& bundle, const Json& how, const std::string& statistic) {
  const std::optional<Summary> summary = summary_of(bundle, how);
  if (!summary) return Json();
  std::optional<double> value = summary->mean;
  if (statistic == "sd") value = summary->sd;
  if (statistic == "interval95_low" || statistic == "interval95_high") {
    value = std::nullopt;
    if (summary->interval95) {
      value = statistic == "interval95_low" ? summary->interval95->low : summary->interval95->high;
    }
  }
  return value && std::isfinite(*value) ? Json(*value) : Json();
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
  fail(how, "unknown name " + rule);
}

ReceiptJson how_of_run(const std::string& run, const ReceiptJson& of) {
  Json how;
  how["rule"] = "run";
  how["run"] = run;
  how["of"] = of;
  return how;
}

ReceiptJson how_over_runs(const std::string& statistic, const ReceiptJson& of,
                          const std::vector<std::string>& runs,
                          const std::vector<std::string>& minus) {
  CHECK(is_statistic(statistic), "no statistic %s", statistic.c_str());
  CHECK(minus.empty() || minus.size() == runs.size(), "%zu runs minus %zu", runs.size(),
        minus.size());
  Json how;
  how["rule"] = statistic;
  how["of"] = of;
  how["runs"] = runs;
  if (!minus.empty()) how["minus"] = minus;
  return how;
}

double rule_tolerance(const ReceiptJson& how, const ReceiptJson& value) {
  constexpr double kStatistic = 1e-9, kSum = 1e-12;
  const double size = value.is_number() ? std::max(1.0, std::abs(value.get<double>())) : 1.0;
  const std::string rule = rule_text(how, "rule");
  if (is_statistic(rule)) return kStatistic * size;
  if (rule == "run") return rule_tolerance(inner_rule(how), value);
  if (rule == "router" && rule_text(how, "measure") == "dead_share") return kSum;
  return 0;
}

}  // namespace assay
