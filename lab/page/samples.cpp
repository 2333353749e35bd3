#include "lab/page/samples.h"

#include <filesystem>
#include <map>
#include <sstream>

#include "base/file.h"
#include "data/json_text.h"
#include "engine/run/run_dir.h"
#include "lab/page/series.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// At most so many bytes, not cut inside a character.
std::string shortened(std::string text, int64_t bytes) {
  if (int64_t(text.size()) <= bytes) return text;
  auto size = size_t(bytes);
  while (size > 0 && (uint8_t(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
  return text + "...";
}

}  // namespace

Json report_samples(const std::string& run, const ReportLimits& limits) {
  std::map<int64_t, Json> texts;
  const std::string path = run + "/" + kSamplesFile;
  std::error_code ignored;
  std::istringstream lines(std::filesystem::exists(path, ignored) ? read_regular_file(path) : "");
  for (std::string line; std::getline(lines, line);) {
    const Json sample = json_of<Json>(line);
    if (!sample.is_object() || !sample.contains("step") || !sample["step"].is_number()) continue;
    Json text;
    text["prompt"] = shortened(text_or_empty(sample, "prompt"), limits.sample_bytes);
    text["text"] = shortened(text_or_empty(sample, "text"), limits.sample_bytes);
    texts[sample["step"].get<int64_t>()].push_back(std::move(text));
  }
  std::vector<int64_t> steps;
  for (const auto& [step, of] : texts) steps.push_back(step);
  Json json = Json::array();
  for (const int64_t step : evenly_chosen(steps, limits.sample_steps)) {
    Json at;
    at["step"] = step;
    at["texts"] = std::move(texts[step]);
    json.push_back(std::move(at));
  }
  return json;
}

}  // namespace assay
