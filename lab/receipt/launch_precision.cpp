#include "lab/receipt/launch_precision.h"

#include "base/check.h"
#include "data/json_text.h"
#include "lab/runs/launches.h"
#include "models/linear/precision.h"

namespace assay {
namespace {

// Older programs recorded the recipe only.
const char* common_key(const ReceiptJson& a, const ReceiptJson& b) {
  const bool both =
      !text_or_empty(a, "precision").empty() && !text_or_empty(b, "precision").empty();
  return both ? "precision" : "recipe";
}

}  // namespace

std::string precision_change(const std::vector<ReceiptJson>& launches) {
  for (size_t i = 1; i < launches.size(); ++i) {
    const ReceiptJson &before = launches[i - 1], &now = launches[i];
    const char* key = common_key(before, now);
    if (text_or_empty(before, key) == text_or_empty(now, key)) continue;
    return strprintf("trained in %s, and from step %ld on in %s",
                     text_or_empty(before, key).c_str(), long(first_step(now)),
                     text_or_empty(now, key).c_str());
  }
  return "";
}

std::string other_precision_in_config(const std::vector<ReceiptJson>& launches,
                                      const Config& config) {
  if (launches.empty()) return "";
  ReceiptJson configured;
  configured["recipe"] = config.precision.recipe;
  configured["precision"] = precision_text(config.precision);
  const char* key = common_key(launches.back(), configured);
  const std::string trained = text_or_empty(launches.back(), key),
                    now = text_or_empty(configured, key);
  if (trained.empty() || trained == now) return "";
  return "its last steps were made in " + trained + ", config.yaml has " + now;
}

RerunPrecision precision_of_rerun(const std::vector<ReceiptJson>& launches, const Config& config) {
  std::vector<ReceiptJson> known, named;
  for (const ReceiptJson& launch : launches) {
    const std::string whole = text_or_empty(launch, "precision"),
                      recipe = text_or_empty(launch, "recipe");
    if (whole.empty() && recipe.empty()) continue;
    known.push_back(launch);
    named.emplace_back()["precision"] = whole.empty() ? recipe : whole;
  }
  if (known.empty()) return {.precision = config.precision};
  if (!precision_change(known).empty()) {
    return {.precision = config.precision,
            .absent = "these steps were trained in " + over_launches(named, "precision") +
                      ", a rerun has one precision"};
  }
  const std::string recipe = text_or_empty(known.back(), "recipe"),
                    whole = text_or_empty(known.back(), "precision");
  if (whole.empty()) {  // nothing is known of the rest
    PrecisionConfig precision = config.precision;
    precision.recipe = recipe;
    return {.precision = precision};
  }
  const auto is_theirs = [&](const PrecisionConfig& precision) {
    return precision_text(precision) == whole;
  };
  if (is_theirs(config.precision)) return {.precision = config.precision};
  for (PrecisionConfig precision : {config.precision, PrecisionConfig()}) {
    precision.recipe = recipe;
    for (const ProductsMode products : {ProductsMode::kSimulated, ProductsMode::kNative}) {
      precision.products = products;
      if (is_theirs(precision)) return {.precision = precision};
    }
  }
  return {.precision = config.precision,
          .absent = "these steps were trained in " + whole + ", config.yaml has " +
                    precision_text(config.precision)};
}

}  // namespace assay
