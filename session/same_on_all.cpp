#include "session/same_on_all.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "comm/agree.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/config/differences.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "ops/instruction_path.h"

namespace assay {

namespace {

using nlohmann::json;

// What evaluations read besides the data.
NamedTexts read_by(const RunEvaluators& evaluators) {
  NamedTexts texts;
  if (evaluators.core) texts = named_bundle(evaluators.core->bundle_hashes());
  if (evaluators.samples) {
    texts.emplace_back("eval.samples: prompts, SHA-256",
                       evaluators.samples->prompts_sha256().substr(0, 16));
  }
  return texts;
}

std::string cpu_with(const std::string& instructions) {
  return "cpu with " + instructions;
}

// What of the device decides the bits. Devices differ where this does too: by their own names,
// since recipe `auto` may be another one on each.
constexpr const char* kDecides = "what decides the device's bits";

json described(const Session& session, const RunData& data, const RunEvaluators& evaluators,
               TrainingRunOptions::Start start) {
  json me;
  me["who"] = process_name();
  me["program"] = program_sha256().substr(0, 16);
  const std::string device = session.device.name();
  me["device"] = device == "cpu" ? cpu_with(instruction_path_text(instruction_path())) : device;
  me[kDecides] = device_with_instructions(device, session.config, CpuWork::kTraining);
  me["start"] = start == TrainingRunOptions::Start::kFresh ? "over" : "where the run is";
  me["tune file, SHA-256"] = session.tuning ? session.tuning->sha256.substr(0, 16) : "none";
  me["config"] = to_yaml(session.config);
  std::map<std::string, std::string> hashes;  // several files may have one name
  for (const auto& [path, file] : data.hashed) {
    hashes[path.substr(path.rfind('/') + 1)] += " " + file.sha256.substr(0, 16);
  }
  me["data"] = hashes;
  std::string order;
  for (const ReadFile& file : read_files(data)) order += file.part + " " + file.sha256 + "\n";
  me["order of the data, SHA-256"] = sha256_hex(order).substr(0, 16);
  me["evaluations"] = read_by(evaluators);
  return me;
}

std::string two(const std::string& what, const std::string& a, const std::string& b) {
  return what + ": " + a + " on rank 0, " + b + " there";
}

// What to do about it: `how` to start the ranks, unless it is a difference of two CPUs.
std::string hint_of(const std::string& difference, const std::string& how) {
  const bool of_cpus = difference.starts_with("device: cpu with ") &&
                       difference.find(" on rank 0, cpu with ") != std::string::npos;
  if (!of_cpus) return "start every rank " + how;
  return "ranks have the same bits only with the same instructions (`assay doctor` lists what is "
         "used): give each the same kind of CPU, kernel and permissions, or take a build for the "
         "least of them (cmake --preset portable)";
}

// "" if the texts are equal, else the first that differs.
std::string difference_of(const NamedTexts& first, const NamedTexts& other) {
  for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
    CHECK(first[i].first == other[i].first, "%s on rank 0, %s there", first[i].first.c_str(),
          other[i].first.c_str());
    if (first[i] != other[i]) return two(first[i].first, first[i].second, other[i].second);
  }
  CHECK(first.size() == other.size(), "%zu texts on rank 0, %zu there", first.size(), other.size());
  return "";
}

// "" if the two would compute the same, else what differs: "NAME here, NAME there".
std::string difference(const json& first, const json& other) {
  for (const char* name : {"program", "device", "start", "tune file, SHA-256"}) {
    if (std::strcmp(name, "device") == 0 && first[kDecides] == other[kDecides]) continue;
    const std::string a = first[name], b = other[name];
    if (a != b) return two(std::strcmp(name, "program") == 0 ? "program, SHA-256" : name, a, b);
  }
  if (first["config"] != other["config"]) {
    const Config a = parse_config_text(first["config"], "configuration", "rank 0");
    const Config b = parse_config_text(other["config"], "configuration", "rank");
    const std::vector<FieldDifference> all = differences_of_ranks(a, b);
    if (!all.empty()) return "configuration: " + all.front().text();
  }
  std::map<std::string, std::pair<std::string, std::string>> files;
  for (const auto& [name, hash] : first["data"].items()) files[name].first = hash;
  for (const auto& [name, hash] : other["data"].items()) files[name].second = hash;
  for (const auto& [name, hashes] : files) {
    const auto shown = [](const std::string& hash) {
      return hash.empty() ? std::string("no such file") : "SHA-256" + hash;
    };
    if (hashes.first != hashes.second) {
      return two("data " + name, shown(hashes.first), shown(hashes.second));
    }
  }
  const std::string order = "order of the data, SHA-256";
  if (first[order] != other[order]) return two(order, first[order], other[order]);
  return difference_of(first["evaluations"], other["evaluations"]);
}

}  // namespace

std::string device_with_instructions(const std::string& device, const Config& config,
                                     CpuWork work) {
  if (device != "cpu") return device;
  return cpu_with(deciding_instructions(instruction_path(), config, work));
}

void require_same_on_all(Ranks& ranks, NamedTexts mine) {
  mine.insert(mine.begin(), {"program, SHA-256", program_sha256().substr(0, 16)});
  json me = {{"who", process_name()}, {"mine", mine}};
  const std::vector<std::string> all = gather_texts(ranks.group(), json_text(me));
  const NamedTexts first = json_or_throw(all.front())["mine"];
  for (size_t r = 1; r < all.size(); ++r) {
    const json other = json_or_throw(all[r]);
    const std::string what = difference_of(first, other["mine"]);
    if (what.empty()) continue;
    throw UserError(strprintf("rank %zu (%s) differs in its %s", r,
                              other["who"].get<std::string>().c_str(), what.c_str()),
                    hint_of(what, "with the same program and command, on the same files"));
  }
}

NamedTexts named_bundle(const std::vector<std::pair<std::string, std::string>>& hashes) {
  NamedTexts texts;
  for (const auto& [name, sha256] : hashes) {
    texts.emplace_back("CORE bundle: " + name + ", SHA-256", sha256.substr(0, 16));
  }
  return texts;
}

void require_same_run_on_all(Ranks& ranks, const Session& session, const RunData& data,
                             const RunEvaluators& evaluators, TrainingRunOptions::Start start) {
  const json me = described(session, data, evaluators, start);
  const std::vector<std::string> all = gather_texts(ranks.group(), json_text(me));
  const json first = json_or_throw(all.front());
  for (size_t r = 1; r < all.size(); ++r) {
    const json other = json_or_throw(all[r]);
    const std::string what = difference(first, other);
    if (what.empty()) continue;
    throw UserError(strprintf("rank %zu (%s) differs in its %s", r,
                              other["who"].get<std::string>().c_str(), what.c_str()),
                    hint_of(what, "with the same program, configuration and data"));
  }
}

}  // namespace assay
