// meta.json: command, build, machine and inputs of a run.
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/cpu_name.h"
#include "base/file.h"
#include "base/utc.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/run_dir.h"
#include "ops/instruction_path.h"

namespace assay {
namespace {

using nlohmann::json;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// The launches recorded in meta.json, oldest first; none if the file cannot be read.
json earlier_launches(const std::string& path) {
  json last = json_in_file(path);
  if (!last.is_object()) return json::array();
  json before =
      last.contains("before") && last["before"].is_array() ? last["before"] : json::array();
  last.erase("before");
  before.push_back(last);
  return before;
}

}  // namespace

void write_meta(const RunDir& run, const RunMeta& meta) {
  const std::string path = run.file("meta.json");
  nlohmann::ordered_json j;
  j["command"] = meta.command;
  j["version"] = meta.build.version;
  j["commit"] = meta.build.commit;
  j["dirty"] = meta.build.dirty;
  j["compiler"] = meta.build.compiler;
  j["flags"] = meta.build.flags;
  j["program_sha256"] = program_sha256();
  j["started"] = utc_now();
  j["first_step"] = meta.first_step;
  j["host"] = host_name();
  j["device"] = meta.device;
  j["cpu"] = cpu_name();
  if (meta.device == "cpu") j["instructions"] = instruction_path();
  j["cores"] = std::thread::hardware_concurrency();
  j["threads"] = meta.threads;
  if (meta.ranks > 1) {
    j["ranks"] = meta.ranks;
    j["nodes"] = meta.nodes;
    j["expert_ranks"] = meta.expert_ranks;
  }
  if (!meta.products_library.empty()) j["products_library"] = meta.products_library;
  if (!meta.tune_sha256.empty()) j["tune_sha256"] = meta.tune_sha256;
  j["recipe"] = meta.recipe;
  j["precision"] = meta.precision;
  j["config_sha256"] = meta.config_sha256;
  j["data_sha256"] = meta.data_sha256;
  j["data_hashed"] = meta.data_hashed;
  if (!meta.tokenizer_sha256.empty()) j["tokenizer_sha256"] = meta.tokenizer_sha256;
  if (meta.epoch_tokens) j["epoch_tokens"] = *meta.epoch_tokens;
  j["before"] = earlier_launches(path);
  write_file_atomic(path, json_text(j, 2) + "\n");
}

}  // namespace assay
