#include "lab/receipt/launch_precision.h"

#include "base/check.h"
#include "lab/runs/launches.h"
#include "models/linear/precision.h"

namespace assay {
namespace {

std::string text_in(const ReceiptJson& launch, const char* key) {
  return launch.contains(key) && launch[key].is_string() ? launch[key].get<std::string>() : "";
}

// Older programs recorded the recipe only.
const char* common_key(const ReceiptJson& a, const ReceiptJson& b) {
  const bool both = !text_in(a, "precision").empty() && !text_in(b, "precision").empty();
  return both ? "precision" : "recipe";
}

}  // namespace

std::string precision_change(const std::vector<ReceiptJson>& launches) {
  for (size_t i = 1; i < launches.size(); ++i) {
    const ReceiptJson &before = launches[i - 1], &now = launches[i];
    const char* key = common_key(before, now);
    if (text_in(before, key) == text_in(now, key)) continue;
    return strprintf("trained in %s, and from step %ld on in %s", text_in(before, key).c_str(),
                     long(first_step(now)), text_in(now, key).c_str());
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
  const std::string trained = text_in(launches.back(), key), now = text_in(configured, key);
  if (trained.empty() || trained == now) return "";
  return "its last steps were made in " + trained + ", config.yaml has " + now;
}

}  // namespace assay
