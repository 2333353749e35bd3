#include "lab/runs/launches.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/joined.h"
#include "data/json_text.h"
#include "engine/cpu_bits.h"
#include "ops/instruction_path.h"

namespace assay {

using Json = nlohmann::ordered_json;

namespace {

std::string text_of(const Json& launch, const std::string& key, const std::string& absent) {
  if (!launch.contains(key)) return absent;
  const Json& value = launch[key];
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  return value.is_string() ? value.get<std::string>() : absent;
}

template <typename Name>
std::string instructions_named(const std::vector<Json>& launches, const Name& name) {
  std::vector<Json> named;
  for (const Json& launch : launches) {
    named.emplace_back()["instructions"] = name(text_of(launch, "instructions", ""));
  }
  return over_launches(named, "instructions");
}

}  // namespace

std::vector<Json> contributing_launches(const std::string& run, int64_t steps_done) {
  Json last = json_in_file<Json>(std::filesystem::path(run) / "meta.json");
  if (!last.is_object()) return {};
  std::vector<Json> all;
  if (last.contains("before") && last["before"].is_array()) {
    for (const Json& launch : last["before"]) {
      if (launch.is_object()) all.push_back(launch);
    }
  }
  last.erase("before");
  all.push_back(last);
  std::vector<Json> contributing;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t next = i + 1 < all.size() ? first_step(all[i + 1]) : steps_done;
    if (first_step(all[i]) < std::min(next, steps_done)) contributing.push_back(all[i]);
  }
  return contributing;
}

std::string missing_launches(const std::string& run, int64_t steps_done) {
  if (steps_done == 0) return "";
  const std::string file = (std::filesystem::path(run) / "meta.json").lexically_normal().string();
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(file, ignored);
  if (!is_there || !json_in_file<Json>(file).is_object()) {
    return (is_there ? file + " is damaged" : "there is no " + file) +
           ": in which precision, on which device and data and by which program its steps were "
           "made "
           "is unknown";
  }
  const std::vector<Json> launches = contributing_launches(run, steps_done);
  const int64_t known_from = launches.empty() ? steps_done : first_step(launches.front());
  if (known_from == 0) return "";
  return strprintf(
      "%s has no launch of the first %ld steps: in which precision, on which device and by which "
      "program they were made is unknown",
      file.c_str(), long(known_from));
}

int64_t first_step(const Json& launch) {
  return launch.contains("first_step") && launch["first_step"].is_number_integer()
             ? launch["first_step"].get<int64_t>()
             : 0;
}

std::string over_launches(const std::vector<Json>& launches, const std::string& key,
                          const std::string& absent) {
  std::vector<std::string> seen;
  for (const Json& launch : launches) {
    const std::string value = text_of(launch, key, absent);
    if (value.empty()) continue;
    if (std::find(seen.begin(), seen.end(), value) == seen.end()) seen.push_back(value);
  }
  return joined(seen, ", then ");
}

std::string instructions_over_launches(const std::vector<Json>& launches) {
  return instructions_named(launches, instruction_path_text);
}

std::string instructions_over_launches(const std::vector<Json>& launches, const Config& config) {
  return instructions_named(launches, [&](const std::string& path) {
    return deciding_instructions(path, config, CpuWork::kTraining);
  });
}

}  // namespace assay
