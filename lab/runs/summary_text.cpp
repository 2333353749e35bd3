#include "lab/runs/summary_text.h"

#include <cmath>

#include "base/check.h"
#include "models/audit/audit_report.h"

namespace assay {

std::string number_text(double value, Digits digits) {
  switch (digits) {
    case Digits::kLoss:
      return strprintf("%.4f", value);
    case Digits::kCount:
      return grouped(std::llround(value));
    case Digits::kShort:
      return strprintf("%.4g", value);
  }
  return "";
}

std::string interval_text(const std::optional<Interval>& interval, Digits digits) {
  if (!interval) return "";
  return strprintf("[%s, %s]", number_text(interval->low, digits).c_str(),
                   number_text(interval->high, digits).c_str());
}

std::string summary_text(const std::optional<Summary>& summary, Digits digits) {
  if (!summary) return "";
  const std::string interval = interval_text(summary->interval95, digits);
  return number_text(summary->mean, digits) + (interval.empty() ? "" : " " + interval);
}

nlohmann::ordered_json summary_json(const std::optional<Summary>& summary) {
  if (!summary) return nullptr;
  nlohmann::ordered_json json;
  json["n"] = summary->n;
  json["mean"] = summary->mean;
  json["sd"] = nullptr;
  json["interval95"] = nullptr;
  if (summary->sd) json["sd"] = *summary->sd;
  if (summary->interval95)
    json["interval95"] = {summary->interval95->low, summary->interval95->high};
  return json;
}

}  // namespace assay
